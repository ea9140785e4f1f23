"""The run's gauges: what events say to them, what the dashboard asks for, and that none of them ends a run."""

from __future__ import annotations

import json
import logging
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from rl.events import Evaluated, EventLog, Metrics, Progress
from rl.grpo.ray_metrics import GAUGES, PARTS, TAG_KEYS, RunGauges, readings
from rl.maze.score import EvalReport, Outcome
from tests.unit.samples import RULES

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = json.loads((ROOT / "docs" / "grafana" / "maze-retrain.json").read_text())
STEP = Metrics(
    step=3,
    values={
        "reward/avg_raw_reward": 0.75,
        "timing/step": 40.0,
        "timing/generate": 16.0,
        "timing/train_critic_and_policy": 20.0,
        "rollouts/trajectories": 64,
    },
)


def evaluated(num_solved: int) -> Evaluated:
    outcomes = tuple(Outcome(seed=i, solved=i < num_solved, actions="S", unparsable_replies=0) for i in range(64))
    return Evaluated(report=EvalReport(step=4, rules=RULES, model_id="m", outcomes=outcomes))


def test_a_step_and_an_evaluation_set_every_gauge_and_no_other() -> None:
    said = [*readings(STEP), *readings(evaluated(48))]
    assert {name for name, _, _ in said} == set(GAUGES)
    plain = {name: value for name, value, tags in said if not tags}
    assert plain == {
        "maze_last_step": 3,
        "maze_reward_mean": 0.75,
        "maze_step_seconds": 40.0,
        "maze_rollouts_per_second": 4.0,
        "maze_solve_rate": 0.75,
        "maze_solved_mazes": 48,
        "maze_eval_mazes": 64,
    }
    parts = {tags["part"]: value for _, value, tags in said if tags}
    assert parts == dict.fromkeys(PARTS.values(), 0.0) | {"rollouts": 16.0, "update": 20.0}
    assert all(set(tags) | {"run_name"} == set(TAG_KEYS[name]) for name, _, tags in said)


def test_the_evaluation_before_training_has_no_step_to_time() -> None:
    assert list(readings(Metrics(step=0, values={"timing/eval": 9.0}))) == [("maze_last_step", 0, {})]
    assert list(readings(Progress(done=1, total=2, text=""))) == []


def fake_ray(monkeypatch: pytest.MonkeyPatch, gauge: Any) -> None:
    module = types.ModuleType("ray.util.metrics")
    module.Gauge = gauge  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray.util.metrics", module)


def test_a_gauge_that_fails_ends_neither_the_run_nor_its_events(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no metrics agent")

    fake_ray(monkeypatch, refuse)
    log = EventLog(listener=RunGauges("r").hear)
    with caplog.at_level(logging.WARNING):
        log.emit(STEP)
        log.emit(evaluated(1))
    assert capsys.readouterr().out.count("@event ") == 2
    assert len(caplog.records) == 1, "said once, not at every step"


def test_gauges_are_made_once_and_tagged_by_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    told: list[tuple[str, float, dict[str, str]]] = []

    class Gauge:
        def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
            made.append(name)
            self.name = name

        def set(self, value: float, tags: dict[str, str]) -> None:
            told.append((self.name, value, tags))

    fake_ray(monkeypatch, Gauge)
    gauges = RunGauges("run-a")
    for event in (STEP, STEP, evaluated(48)):
        gauges.hear(event)
    assert sorted(made) == sorted(GAUGES)
    assert ("maze_solved_mazes", 48, {"run_name": "run-a"}) in told
    assert ("maze_step_part_seconds", 16.0, {"run_name": "run-a", "part": "rollouts"}) in told


def test_the_dashboard_asks_for_every_gauge_and_for_nothing_else() -> None:
    asked = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    asked += [entry["definition"] for entry in DASHBOARD["templating"]["list"] if entry["type"] == "query"]
    metrics = {name for text in asked for name in re.findall(r"\b[a-z_]*maze_[a-z_]+", text)}
    assert metrics == {f"ray_{name}" for name in GAUGES}


def test_the_dashboard_leaves_source_and_run_open_and_counts_to_64() -> None:
    assert [entry["name"] for entry in DASHBOARD["templating"]["list"]] == ["datasource", "run_name"]
    for panel in DASHBOARD["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all('run_name=~"$run_name"' in target["expr"] for target in panel["targets"])
    solved = next(panel for panel in DASHBOARD["panels"] if "solved" in panel["title"])
    assert (solved["fieldConfig"]["defaults"]["min"], solved["fieldConfig"]["defaults"]["max"]) == (0, 64)
