"""The direction of the simulation's findings, on few draws."""

from __future__ import annotations

import pytest

from bench.judge import Design, choosing_bias, cycles, likeness, loss_share

RHO = likeness()


def test_the_best_of_more_equal_steps_scores_further_above_its_true_rate() -> None:
    one, four, sixteen = (choosing_bias(number, 300, RHO) for number in (1, 4, 16))
    assert one == pytest.approx(0.0, abs=0.7)
    assert one + 1 < four < sixteen - 0.5


def test_worse_candidates_wear_the_champion_down_by_a_margin_and_not_by_a_test_on_fresh_mazes() -> None:
    by_margin, by_test = (cycles(design, -0.02, 40, RHO, 20) for design in (Design(), Design(128)))
    assert by_margin[0] > 5 * by_test[0]
    assert by_margin[1] < 3 * by_test[1] <= 0


def test_two_models_are_as_alike_as_the_measured_pair() -> None:
    assert loss_share(61 / 256, 121 / 256, RHO) == pytest.approx(6 / 256, abs=1e-4)
