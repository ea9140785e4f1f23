"""The list of what was produced and what MLflow holds, of a real training's events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.produced import as_markdown, events_in, lines_of
from tasks.jobs.news import ORDER
from tests.recorded_run import HERE
from tests.unit.evidence.test_nothing_is_missing import Told

pytestmark = pytest.mark.slow_s(25)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return Told(tmp_path_factory.mktemp("told"))


def test_all_that_a_real_training_told_is_held_once(told: Told) -> None:
    events = events_in(HERE / "training.events.jsonl.gz")
    lines = lines_of(told.client, told.parent_id, told.child_id, events)
    assert [line.what for line in lines if not line.holds] == []
    counts = {line.what: len(line.wanted) for line in lines}
    assert counts["SkyRL's numbers"] > 1500
    assert (counts["exported steps as models"], counts["sets of mazes"]) == (4, 2)
    assert "| SkyRL's numbers | attempt |" in as_markdown(lines)
    assert "missing:" not in as_markdown(lines)


def test_what_mlflow_lacks_or_has_twice_is_named(told: Told, tmp_path: Path) -> None:
    events = events_in(HERE / "training.events.jsonl.gz")
    told.client.log_metric(told.child_id, "policy/final_loss", 1.0, step=3)
    told.client.log_metric(told.parent_id, "train/reward", 1.0, step=99)
    empty = told.client.create_run(told.client.get_run(told.parent_id).info.experiment_id).info.run_id
    lines = lines_of(told.client, told.parent_id, told.child_id, events)
    assert {line.what: set(line.twice) for line in lines if line.twice} == {
        "SkyRL's numbers": {("policy/final_loss", 3)}
    }
    lacking = lines_of(told.client, empty, empty, events)
    assert all(line.missing == line.wanted for line in lacking)
    assert ORDER in as_markdown(lacking)
    assert "twice: ('policy/final_loss', 3)" in as_markdown([replace(lines[0], missing=frozenset())])
