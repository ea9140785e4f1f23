"""Intervals and tests of a comparison, against scipy, against the formulas written down again, and as published."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from scipy.stats import binom, norm

from tasks.release.statistics import (
    Share,
    mcnemar_p_value,
    mcnemar_power,
    paired_difference,
    path_efficiency,
    solved_by_length,
    visible_gain,
    wilson_interval,
)

Table = tuple[int, int, int, int]


def tables(number: int) -> list[Table]:
    """Random tables of wins, losses, both and neither; some with empty cells."""
    draw = random.Random(7)
    found: list[Table] = []
    while len(found) < number:
        cells = [draw.choice((0, draw.randint(0, 3), draw.randint(0, 80))) for _ in range(4)]
        if sum(cells):
            found.append((cells[0], cells[1], cells[2], cells[3]))
    return found


def test_wilson_intervals_are_where_the_score_test_is_just_rejected() -> None:
    z = float(norm.ppf(0.975))
    for wins, losses, both, neither in tables(300):
        solved, num_mazes = wins + both, wins + losses + both + neither
        for bound in wilson_interval(solved, num_mazes):
            if 1e-9 < bound < 1 - 1e-9:
                score = abs(solved / num_mazes - bound) / math.sqrt(bound * (1 - bound) / num_mazes)
                assert score == pytest.approx(z, abs=1e-6)


def test_mcnemars_test_is_twice_the_smaller_binomial_tail() -> None:
    for wins, losses, _, _ in tables(300):
        tail = 2 * float(binom.cdf(min(wins, losses), wins + losses, 0.5))
        assert mcnemar_p_value(wins, losses) == pytest.approx(min(1.0, tail))
    assert mcnemar_p_value(0, 0) == 1.0


@pytest.mark.parametrize(
    ("table", "low", "high"),
    [
        # Newcombe 1998, table II, method 10.
        ((12, 2, 20, 16), 0.0562, 0.3290),
        ((12, 2, 36, 0), 0.0569, 0.3404),
    ],
)
def test_newcombes_interval_is_the_published_one(table: Table, low: float, high: float) -> None:
    found = paired_difference(*table)
    assert (found.value, found.low, found.high) == pytest.approx((0.2, low, high), abs=5e-4)


def test_the_interval_of_a_difference_holds_it_stays_in_range_and_turns_with_the_players() -> None:
    for wins, losses, both, neither in tables(80):
        found, turned = paired_difference(wins, losses, both, neither), paired_difference(losses, wins, both, neither)
        assert -1 - 1e-9 <= found.low <= found.value <= found.high <= 1 + 1e-9
        assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))
        wider = paired_difference(wins, losses, both, neither, confidence=0.99)
        assert wider.low <= found.low + 1e-12
        assert wider.high >= found.high - 1e-12


def test_ninety_five_of_a_hundred_intervals_hold_the_true_difference() -> None:
    draw, chances, held = random.Random(11), (0.25, 0.1, 0.45, 0.2), 0
    for _ in range(400):
        cells = draw.choices(range(4), chances, k=64)
        found = paired_difference(cells.count(0), cells.count(1), cells.count(2), cells.count(3))
        held += found.low <= chances[0] - chances[1] <= found.high
    assert 0.93 <= held / 400 <= 0.985


def test_detours_lower_the_efficiency_and_lengths_are_counted_apart() -> None:
    assert path_efficiency([8, 10], [8, 5]) == pytest.approx(0.75)
    assert path_efficiency([], []) is None
    assert solved_by_length([True, False, True], [7, 9, 9]) == {7: Share(1, 1), 9: Share(1, 2)}
    assert wilson_interval(62, 64) == pytest.approx((0.893, 0.991), abs=1e-3)


@pytest.mark.parametrize(("gain", "loss_share", "num_mazes"), [(0.08, 0.03, 128), (0.15, 0.06, 64), (0.0, 0.1, 256)])
def test_power_is_how_often_the_exact_test_says_better(gain: float, loss_share: float, num_mazes: int) -> None:
    draw, found, rounds = random.Random(3), 0, 2000
    chances = (loss_share + gain, loss_share, 1 - 2 * loss_share - gain)
    critical: dict[tuple[int, int], bool] = {}
    for _ in range(rounds):
        cells = draw.choices(range(3), chances, k=num_mazes)
        pair = cells.count(0), cells.count(1)
        if pair not in critical:
            critical[pair] = pair[0] > pair[1] and mcnemar_p_value(*pair) <= 0.05
        found += critical[pair]
    assert mcnemar_power(gain, loss_share, num_mazes, 0.05) == pytest.approx(found / rounds, abs=0.035)


def test_a_visible_gain_is_the_smallest_that_has_the_power() -> None:
    for num_mazes, loss_share in itertools.product((64, 128, 288), (0.0, 0.023, 0.06)):
        gain = visible_gain(num_mazes, loss_share, 0.05)
        assert gain is not None
        assert (
            mcnemar_power(gain, loss_share, num_mazes, 0.05)
            >= 0.9
            > mcnemar_power(gain - 2e-4, loss_share, num_mazes, 0.05)
        )
    assert visible_gain(5, 0.0, 0.05) is None
    assert visible_gain(64, 0.5, 0.05) is None
    assert mcnemar_power(0.0, 0.0, 64, 0.05) == 0.0
