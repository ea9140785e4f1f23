"""A run is opened and closed here: its runs in MLflow, its page in Prefect, the context that its stages get.

The pipeline's verdict decides the state of its MLflow runs, never a dying process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rl.maze.score import EvalReport
from tasks.clients.mlflow_runs import MlflowRun, MlflowRuns
from tasks.evidence.prefect_attempts import attempts_of, own_flow_run_id
from tasks.evidence.prefect_page import PrefectPage
from tasks.run import RunContext, RunLog
from tasks.settings import TrackingSettings


@contextmanager
def tracked_run(settings: TrackingSettings, run_name: str, params: Mapping[str, Any]) -> Iterator[RunContext]:
    """Parent and child run, open while the block runs: FINISHED after it, FAILED on an error, KILLED on a stop.

    Raises TrackingUnavailable before anything else has started.
    """
    mlflow, tags = MlflowRuns(settings.tracking_uri, settings.experiment), {"maze.run_name": run_name}
    run = mlflow.open(run_name, {**tags, "maze.role": "pipeline"})
    training = mlflow.open_child(run, f"{run_name}-train", {**tags, "maze.role": "training"})
    run.params(flat(params))
    context = _context(run_name, run, training)
    context.page.say(f"MLflow: {run.url}")
    with _ended_by_its_verdict(training, run):
        yield context


@contextmanager
def tracked_evaluation(
    settings: TrackingSettings, run_name: str, model_id: str, params: Mapping[str, Any]
) -> Iterator[RunContext]:
    """One run for one evaluation, open while the block runs; it trains nothing and has no child."""
    mlflow = MlflowRuns(settings.tracking_uri, settings.experiment)
    run = mlflow.open(run_name, {"maze.role": "evaluation", "maze.model_id": model_id})
    run.params(flat(params))
    with _ended_by_its_verdict(run):
        yield _context(run_name, run, Unrecorded())


def untracked_run(run_name: str) -> RunContext:
    """For flows that look or put in order: Prefect shows them, MLflow does not."""
    return _context(run_name, Unrecorded(), Unrecorded())


def _context(run_name: str, run: RunLog, training: RunLog) -> RunContext:
    asked, page = partial(attempts_of, run_name), PrefectPage(run_name)
    return RunContext(run_name, run, training, page, flow_run_id=own_flow_run_id(), attempts=asked)


def keep_evaluation(context: RunContext, report: EvalReport) -> None:
    """The figures and every maze's outcome."""
    context.run.metrics(report.step, report.metrics())
    context.run.text(report.model_dump_json(indent=1), "evaluation.json")


class Unrecorded:
    """Takes everything and keeps nothing."""

    run_id, url = "", ""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Kept nowhere."""

    def text(self, text: str, artifact_path: str) -> None:
        """Kept nowhere."""

    def file(self, path: Path, folder: str) -> None:
        """Kept nowhere."""

    def tags(self, tags: Mapping[str, str]) -> None:
        """Kept nowhere."""


@contextmanager
def _ended_by_its_verdict(*runs: MlflowRun) -> Iterator[None]:
    try:
        yield
    except Exception:
        _end(runs, "FAILED")
        raise
    except BaseException:
        _end(runs, "KILLED")
        raise
    _end(runs, "FINISHED")


def _end(runs: Sequence[MlflowRun], status: str) -> None:
    for run in runs:
        run.end(status)


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted parameters: ``{"a": {"b": 1}}`` -> ``{"a.b": 1}``."""
    result: dict[str, Any] = {}
    for key, value in document.items():
        name = f"{prefix}{key}"
        result |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return result
