"""What the context notes of its stages, and what a stage is to Prefect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tasks.run import RunContext, StageBook
from tasks.stage import stage
from tests.recording import recording


@stage
def bake(context: RunContext, num_loaves: int) -> str:
    """A stage like any other."""
    if num_loaves < 0:
        raise ValueError("no bread")
    if num_loaves == 0:
        raise KeyboardInterrupt
    return f"{context.run_name}: {num_loaves}"


def test_each_call_of_a_stage_is_noted_with_its_time_and_its_outcome() -> None:
    ticks = iter([0.0, 1.5, 10.0, 12.0, 20.0, 23.0])
    context = replace(recording("r")[0], stages=StageBook(clock=lambda: next(ticks)))
    assert bake.fn(context, 2) == "r: 2"
    with pytest.raises(ValueError, match="no bread"):
        bake.fn(context, -1)
    with pytest.raises(KeyboardInterrupt):
        bake.fn(context, 0)
    assert [(run.name, run.attempt, run.took_s, run.outcome) for run in context.stages.runs] == [
        ("bake", 1, 1.5, "completed"),
        ("bake", 1, 2.0, "failed"),
        ("bake", 1, 3.0, "stopped"),
    ]
    assert context.stages.seconds() == {"bake": 6.5}


def test_a_stage_is_a_task_of_its_name_that_is_never_cached() -> None:
    assert bake.name == "bake"
    assert bake.__doc__ == "A stage like any other."
    assert bake.cache_policy is not None
    assert bake.cache_policy.compute_key(None, {}, {}) is None  # type: ignore[arg-type] - nothing is looked at
