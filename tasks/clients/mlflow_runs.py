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

_NOT_ALLOWED = re.compile(r"[^\w\-./ :]")
_MAX_PARAMS_PER_BATCH = 100
_MAX_METRICS_PER_BATCH = 1000


class MlflowRun:
    """One run: its figures, files and tags. Each metric is logged once per step, whoever tells it again."""

    def __init__(self, client: MlflowClient, run_id: str, url: str) -> None:
        self._client, self.run_id, self.url = client, run_id, url
        self._seen: set[tuple[str, int]] | None = None

    def params(self, params: Mapping[str, Any]) -> None:
        """Log parameters; one that the run has already stays as it is."""
        known = self._client.get_run(self.run_id).data.params
        entries = [Param(key, str(value)[:6000]) for key, value in params.items() if key not in known]
        for start in range(0, len(entries), _MAX_PARAMS_PER_BATCH):
            self._client.log_batch(self.run_id, params=entries[start : start + _MAX_PARAMS_PER_BATCH])

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Log each metric once per step: following a job's log a second time adds nothing."""
        if self._seen is None:
            self._seen = self._logged()
        seen, now_ms = self._seen, int(time.time() * 1000)
        named = {_NOT_ALLOWED.sub("_", key): value for key, value in values.items()}
        fresh = [Metric(key, value, now_ms, step) for key, value in named.items() if (key, step) not in seen]
        for start in range(0, len(fresh), _MAX_METRICS_PER_BATCH):
            self._client.log_batch(self.run_id, metrics=fresh[start : start + _MAX_METRICS_PER_BATCH])
        seen |= {(metric.key, step) for metric in fresh}

    def _logged(self) -> set[tuple[str, int]]:
        keys = self._client.get_run(self.run_id).data.metrics
        return {(key, point.step) for key in keys for point in self._client.get_metric_history(self.run_id, key)}

    def tags(self, tags: Mapping[str, str]) -> None:
        self._client.log_batch(self.run_id, tags=[RunTag(key, value) for key, value in tags.items()])

    def text(self, text: str, artifact_path: str) -> None:
        self._client.log_text(self.run_id, text, artifact_path)

    def file(self, path: Path, folder: str) -> None:
        self._client.log_artifact(self.run_id, str(path), folder)

    def end(self, status: str) -> None:
        """``status`` is FINISHED, FAILED or KILLED."""
        self._client.set_terminated(self.run_id, status)


class MlflowRuns:
    """The runs of one experiment."""

    def __init__(self, tracking_uri: str, experiment: str) -> None:
        """Raises TrackingUnavailable when the server does not answer."""
        self._uri = tracking_uri
        self._client = MlflowClient(tracking_uri)
        try:
            found = self._client.get_experiment_by_name(experiment)
            self._experiment_id: str = found.experiment_id if found else self._client.create_experiment(experiment)
        except MlflowException as error:
            raise TrackingUnavailable(
                f"MLflow at {tracking_uri} does not answer ({error}); start it (locally: make up) or correct "
                "tracking.tracking_uri"
            ) from error

    def open(self, name: str, tags: Mapping[str, str]) -> MlflowRun:
        """Find or make the run of this name, and mark it RUNNING."""
        escaped = name.replace("'", "")
        found = self._client.search_runs([self._experiment_id], f"tags.mlflow.runName = '{escaped}'", max_results=1)
        if found:
            run_id: str = found[0].info.run_id
            self._client.update_run(run_id, status="RUNNING")
        else:
            run_id = self._client.create_run(self._experiment_id, run_name=name, tags=dict(tags)).info.run_id
        return MlflowRun(self._client, run_id, f"{self._uri}/#/experiments/{self._experiment_id}/runs/{run_id}")

    def open_child(self, parent: MlflowRun, name: str, tags: Mapping[str, str]) -> MlflowRun:
        """The same below a parent, as MLflow's pages show it."""
        return self.open(name, {**tags, "mlflow.parentRunId": parent.run_id})
