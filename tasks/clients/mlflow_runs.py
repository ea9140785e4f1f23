"""MLflow: the one owner of its client. Runs are found by name, metrics are logged once per step."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from tasks.errors import TrackingUnavailable
from tasks.records import TrackedRun

_NOT_ALLOWED = re.compile(r"[^\w\-./ :]")
_MAX_PARAMS_PER_BATCH = 100
_MAX_METRICS_PER_BATCH = 1000


class MlflowRuns:
    """The parent and child run of one pipeline run."""

    def __init__(self, tracking_uri: str, experiment: str) -> None:
        """Raises TrackingUnavailable when the server does not answer."""
        self._uri = tracking_uri
        self._client = MlflowClient(tracking_uri)
        self._seen: dict[str, set[tuple[str, int]]] = {}
        try:
            found = self._client.get_experiment_by_name(experiment)
            self._experiment_id: str = found.experiment_id if found else self._client.create_experiment(experiment)
        except MlflowException as error:
            raise TrackingUnavailable(
                f"MLflow at {tracking_uri} does not answer ({error}); start it (locally: make up) or correct "
                "tracking.tracking_uri"
            ) from error

    def open(self, run_name: str, params: Mapping[str, Any], tags: Mapping[str, str]) -> TrackedRun:
        """Find or make the runs named ``run_name`` and ``run_name``-train, and mark both RUNNING."""
        parent = self._find_or_create(run_name, {**tags, "maze.role": "pipeline"})
        child_tags = {**tags, "maze.role": "training", "mlflow.parentRunId": parent}
        child = self._find_or_create(f"{run_name}-train", child_tags)
        self._log_params(parent, params)
        url = f"{self._uri}/#/experiments/{self._experiment_id}/runs/{parent}"
        return TrackedRun(experiment_id=self._experiment_id, parent_run_id=parent, child_run_id=child, url=url)

    def open_one(self, run_name: str, params: Mapping[str, Any], tags: Mapping[str, str]) -> tuple[str, str]:
        """A run without a child; returns its id and its page."""
        run_id = self._find_or_create(run_name, tags)
        self._log_params(run_id, params)
        return run_id, f"{self._uri}/#/experiments/{self._experiment_id}/runs/{run_id}"

    def close_one(self, run_id: str, status: str) -> None:
        self._client.set_terminated(run_id, status)

    def _find_or_create(self, name: str, tags: Mapping[str, str]) -> str:
        escaped = name.replace("'", "")
        found = self._client.search_runs([self._experiment_id], f"tags.mlflow.runName = '{escaped}'", max_results=1)
        if found:
            run_id: str = found[0].info.run_id
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        return self._client.create_run(self._experiment_id, run_name=name, tags=dict(tags)).info.run_id

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        known = self._client.get_run(run_id).data.params
        entries = [Param(key, str(value)[:6000]) for key, value in params.items() if key not in known]
        for start in range(0, len(entries), _MAX_PARAMS_PER_BATCH):
            self._client.log_batch(run_id, params=entries[start : start + _MAX_PARAMS_PER_BATCH])

    def log_metrics(self, run_id: str, step: int, values: Mapping[str, float]) -> None:
        """Log each metric once per step: following a job's log a second time adds nothing."""
        if run_id not in self._seen:
            self._seen[run_id] = self._logged(run_id)
        seen, now_ms = self._seen[run_id], int(time.time() * 1000)
        named = {_NOT_ALLOWED.sub("_", key): value for key, value in values.items()}
        fresh = [Metric(key, value, now_ms, step) for key, value in named.items() if (key, step) not in seen]
        for start in range(0, len(fresh), _MAX_METRICS_PER_BATCH):
            self._client.log_batch(run_id, metrics=fresh[start : start + _MAX_METRICS_PER_BATCH])
        seen |= {(metric.key, step) for metric in fresh}

    def _logged(self, run_id: str) -> set[tuple[str, int]]:
        keys = self._client.get_run(run_id).data.metrics
        return {(key, point.step) for key in keys for point in self._client.get_metric_history(run_id, key)}

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        self._client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])

    def log_text(self, run_id: str, text: str, artifact_path: str) -> None:
        self._client.log_text(run_id, text, artifact_path)

    def log_file(self, run_id: str, path: Path, folder: str) -> None:
        self._client.log_artifact(run_id, str(path), folder)

    def close(self, run: TrackedRun, status: str) -> None:
        """End both runs; ``status`` is FINISHED, FAILED or KILLED, from the pipeline's own verdict."""
        for run_id in (run.child_run_id, run.parent_run_id):
            self._client.set_terminated(run_id, status)
