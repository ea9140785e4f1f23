"""Which episodes of a step are kept, how many, and how many of their words."""

from __future__ import annotations

import random

import pytest

from rl.grpo.rollouts.sample import MAX_ROLLOUTS, MAX_WORDS, sample
from rl.maze.score import Outcome, Said


def episode(seed: int, solved: bool, words: str = "") -> Outcome:
    said = (Said(turn=0, reply=words),) if words else ()
    return Outcome(seed=seed, solved=solved, actions="S", unparsable_replies=0, said=said)


def kept(*groups: tuple[int, str]) -> list[int]:
    outcomes = [episode(seed, end == "s") for seed, ends in groups for end in ends]
    found = sample(4, outcomes, [float(one.solved) for one in outcomes], [0.0] * len(outcomes))
    assert [one.reward for one in found.rollouts] == [float(one.outcome.solved) for one in found.rollouts]
    return list(dict.fromkeys(one.outcome.seed for one in found.rollouts))


@pytest.mark.parametrize(
    ("groups", "seeds"),
    [
        (((1, "ss"), (2, "--"), (3, "s-"), (4, "-s")), [3, 1]),
        (((1, "s-"), (2, "-s"), (3, "s-")), [1, 2]),
        (((1, "ss"), (2, "--"), (3, "ss")), [1, 2]),
        (((7, "s-"),), [7]),
    ],
)
def test_a_maze_that_teaches_and_one_that_does_not_are_kept(
    groups: tuple[tuple[int, str], ...], seeds: list[int]
) -> None:
    assert kept(*groups) == seeds


def test_a_group_stands_together_whatever_the_batch_s_order_and_each_keeps_its_figures() -> None:
    outcomes = [episode(number % 3, number % 2 == 0) for number in range(12)]
    numbers = list(range(12))
    random.Random(1).shuffle(numbers)
    shuffled = [outcomes[number] for number in numbers]
    found = sample(1, shuffled, [float(number) for number in numbers], [number / 10 for number in numbers])
    assert len(found.rollouts) == 8
    assert [one.outcome.seed for one in found.rollouts[:4]] == [found.rollouts[0].outcome.seed] * 4
    for one in found.rollouts:
        number = int(one.reward)
        assert (one.outcome, one.advantage) == (outcomes[number], number / 10)


def test_a_step_s_line_stays_small_however_large_groups_and_replies_are() -> None:
    outcomes = [episode(number // 64, number % 2 == 0, "because " * 500) for number in range(256)]
    found = sample(1, outcomes, [0.0] * 256, [None] * 256)
    assert len(found.rollouts) == MAX_ROLLOUTS
    assert len(found.model_dump_json()) < 2 * MAX_WORDS
    left_out = [one.outcome.said for one in found.rollouts if one.outcome.said]
    assert left_out[0][0].reply == "because " * 500
    assert (left_out[-1][0].reply, left_out[-1][0].num_left_out) == (None, 4000)


def test_figures_of_other_episodes_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        sample(1, [episode(1, True), episode(1, False)], [1.0], [0.5])
