"""What runs left in MLflow to be compared by: curves, report, evaluations maze by maze. Looks only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from rl.maze.score import EvalReport
from tasks.clients.mlflow_client import mlflow_client
from tasks.clients.mlflow_history import PastRun, RunHistory
from tasks.clients.mlflow_runs import MlflowRun, told_apart
from tasks.errors import UnknownRun

RATE, RATE_LOW, RATE_HIGH = "eval/solve_rate", "eval/solve_rate_low", "eval/solve_rate_high"
REWARD, STEP_S, WHOLE_RUN_S, USD = "train/reward", "time/step_s", "stage/whole_run_s", "cost/usd"
CURVES = (RATE, RATE_LOW, RATE_HIGH, REWARD, STEP_S, WHOLE_RUN_S, USD)
"""Metrics of a run whose whole history is read (docs/mlflow.md)."""
REPORT, JUDGED = "report.json", "judge/candidate.json"
EVALUATION_MAZES, JUDGE_MAZES = "evaluation mazes", "judge mazes"
"""What the two sets are called."""


@dataclass(frozen=True)
class RunEvidence:
    """One run, as it is compared with others."""

    run: PastRun
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Metric -> step -> value."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """What the run reported at its end; empty where it did not come to that."""
    evaluations: Mapping[str, EvalReport] = field(default_factory=dict)
    """Set of mazes -> how the step that the run kept played it."""


class EvidenceOfRuns:
    """The runs of one experiment; raises TrackingUnavailable."""

    def __init__(self, tracking_uri: str, experiment: str) -> None:
        self._client, self._history = mlflow_client(tracking_uri), RunHistory(tracking_uri, experiment)

    def named(self, names: Sequence[str]) -> list[RunEvidence]:
        """The newest run of each name, in this order; raises UnknownRun with all names that MLflow does not know."""
        found = {name: self._history.named(name) for name in names}
        if unknown := [name for name, run in found.items() if run is None]:
            raise UnknownRun(f"MLflow knows no run {', '.join(unknown)}; `maze-retrain runs` lists them")
        return [self._of(run) for run in found.values() if run]

    def _of(self, run: PastRun) -> RunEvidence:
        text = self._read(run.run_id, REPORT)
        report: dict[str, Any] = json.loads(text) if text else {}
        places = {JUDGE_MAZES: (run.run_id, JUDGED)}
        if report:
            kept = f"evaluations/step_{report['best']['step']:06d}.json"
            places = {EVALUATION_MAZES: (report["mlflow"]["child_run_id"], kept), **places}
        read = {name: _evaluation(self._read(*place)) for name, place in places.items()}
        evaluations = {name: found for name, found in read.items() if found}
        return RunEvidence(run, self._curves(run), report, evaluations)

    def _curves(self, run: PastRun) -> dict[str, dict[int, float]]:
        with told_apart():
            histories = {
                name: self._client.get_metric_history(run.run_id, name) for name in CURVES if name in run.metrics
            }
        return {name: {point.step: point.value for point in points} for name, points in histories.items() if points}

    def _read(self, run_id: str, artifact_path: str) -> str | None:
        return MlflowRun(self._client, run_id, "").read(artifact_path) if run_id else None


def _evaluation(text: str | None) -> EvalReport | None:
    """None also where another version wrote it, which did not say by which rules it was played."""
    try:
        return EvalReport.model_validate_json(text) if text else None
    except ValidationError:
        return None
