"""Stage: open and close the run in MLflow. The pipeline's verdict decides its state, never a dying process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prefect import get_run_logger

from tasks.adapters.mlflow_runs import MlflowRuns
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
    try:
        yield run
    except Exception:
        mlflow.close(run, "FAILED")
        raise
    except BaseException:
        mlflow.close(run, "KILLED")
        raise
    mlflow.close(run, "FINISHED")


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted parameters: ``{"a": {"b": 1}}`` -> ``{"a.b": 1}``."""
    result: dict[str, Any] = {}
    for key, value in document.items():
        name = f"{prefix}{key}"
        result |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return result
