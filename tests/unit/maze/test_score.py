"""An evaluation is whole or it is none."""

from __future__ import annotations

import pytest

from rl.maze.score import IncompleteEvaluation, make_report
from tests.unit.samples import RULES, SEEDS, walk


def test_an_evaluation_that_missed_or_doubled_a_maze_is_refused() -> None:
    played = [walk(seed, True) for seed in SEEDS]
    assert make_report(3, RULES, "m", SEEDS, played[::-1]).outcomes == tuple(played)
    for wrong in (played[:-1], [*played[:-1], played[0]]):
        with pytest.raises(IncompleteEvaluation, match=f"missing seeds .{SEEDS[-1]}"):
            make_report(3, RULES, "m", SEEDS, wrong)
