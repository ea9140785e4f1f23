"""Stage: open and close the run in MLflow. The pipeline's verdict decides its state, never a dying process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prefect import get_run_logger

from rl.maze.score import EvalReport
from tasks.clients.mlflow_runs import MlflowRuns
from tasks.records import TrackedRun
from tasks.settings import TrackingSettings


@contextmanager
def tracked_run(settings: TrackingSettings, run_name: str, params: Mapping[str, Any]) -> Iterator[TrackedRun]:
    """Parent and child run, open while the block runs: FINISHED after it, FAILED on an error, KILLED on a stop.

    Raises TrackingUnavailable before anything else has started.
    """
    mlflow = MlflowRuns(settings.tracking_uri, settings.experiment)
    run = mlflow.open(run_name, flat(params), {"maze.run_name": run_name})
    get_run_logger().info("MLflow: %s", run.url)
    with _ended_by_its_verdict(lambda status: mlflow.close(run, status)):
        yield run


class TrackedEvaluation:
    """One run in MLflow that holds one evaluation."""

    def __init__(self, mlflow: MlflowRuns, run_id: str, url: str) -> None:
        self._mlflow, self._run_id, self._url = mlflow, run_id, url

    def log(self, report: EvalReport) -> str:
        """Log the figures and every maze's outcome; returns the run's page."""
        self._mlflow.log_metrics(self._run_id, report.step, report.metrics())
        self._mlflow.log_text(self._run_id, report.model_dump_json(indent=1), "evaluation.json")
        return self._url


@contextmanager
def tracked_evaluation(
    settings: TrackingSettings, run_name: str, model_id: str, params: Mapping[str, Any]
) -> Iterator[TrackedEvaluation]:
    """A run for one evaluation, open while the block runs; ended as ``tracked_run`` ends its runs."""
    mlflow = MlflowRuns(settings.tracking_uri, settings.experiment)
    tags = {"maze.role": "evaluation", "maze.model_id": model_id}
    run_id, url = mlflow.open_one(run_name, flat(params), tags)
    with _ended_by_its_verdict(lambda status: mlflow.close_one(run_id, status)):
        yield TrackedEvaluation(mlflow, run_id, url)


@contextmanager
def _ended_by_its_verdict(close: Callable[[str], object]) -> Iterator[None]:
    try:
        yield
    except Exception:
        close("FAILED")
        raise
    except BaseException:
        close("KILLED")
        raise
    close("FINISHED")


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted parameters: ``{"a": {"b": 1}}`` -> ``{"a.b": 1}``."""
    result: dict[str, Any] = {}
    for key, value in document.items():
        name = f"{prefix}{key}"
        result |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return result
