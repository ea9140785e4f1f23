"""MLflow: the one owner of its client. Runs are found by tags of ours, metrics are logged once per step."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.validation import MAX_ENTITY_KEY_LENGTH, MAX_PARAM_VAL_LENGTH, _validate_metric_name

from tasks.clients.mlflow_client import mlflow_client
from tasks.clients.mlflow_inputs import log_inputs, log_model, log_table
from tasks.clients.mlflow_names import (
    EXPERIMENT_TAGS,
    FLOW_RUNS_TAG,
    LEFT_OUT_TAG,
    PARENT_TAG,
    ROLE_TAG,
    RUN_NAME_TAG,
    TRAINING_PAGES,
)
from tasks.clients.mlflow_view import VIEW_TAG, view_document
from tasks.errors import TrackingRefused, TrackingUnavailable
from tasks.run import Dataset, MadeModel

_TO_ENCODE = re.compile(r"[^A-Za-z0-9_./ -]")
_MAX_PARAMS_PER_BATCH = 100
_MAX_METRICS_PER_BATCH = 1000


class MlflowRun:
    """One run: its figures, files and tags. Each metric is logged once per step, whoever tells it again.

    Every verb raises TrackingUnavailable where asking again may help, TrackingRefused where it cannot.
    """

    def __init__(self, client: MlflowClient, run_id: str, url: str) -> None:
        self._client, self.run_id, self.url = client, run_id, url
        self._seen: set[tuple[str, int]] | None = None
        self._left_out: set[str] = set()

    def params(self, params: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """Log parameters; one that the run has already stays as it is. Returns those that differ: (kept, wanted)."""
        texts = {key: str(value)[:MAX_PARAM_VAL_LENGTH] for key, value in params.items()}
        with told_apart():
            known = self._client.get_run(self.run_id).data.params
            entries = [Param(key, text) for key, text in texts.items() if key not in known]
            for start in range(0, len(entries), _MAX_PARAMS_PER_BATCH):
                self._client.log_batch(self.run_id, params=entries[start : start + _MAX_PARAMS_PER_BATCH])
        return {key: (known[key], text) for key, text in texts.items() if known.get(key, text) != text}

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Log each metric once per step: following a job's log a second time adds nothing.

        A name that MLflow does not take in any spelling is left out; the tag ``maze.metrics_left_out`` counts them.
        """
        with told_apart():
            seen, now_ms = self._logged(), int(time.time() * 1000)
            named = {metric_key(name): value for name, value in values.items() if self._takes(name)}
            fresh = [Metric(key, value, now_ms, step) for key, value in named.items() if (key, step) not in seen]
            # Where no answer comes, nobody knows what arrived: MLflow is asked before it is told again.
            self._seen = None
            for start in range(0, len(fresh), _MAX_METRICS_PER_BATCH):
                self._client.log_batch(self.run_id, metrics=fresh[start : start + _MAX_METRICS_PER_BATCH])
            self._seen = seen | {(metric.key, step) for metric in fresh}

    def _takes(self, name: str) -> bool:
        key = metric_key(name)
        try:
            _validate_metric_name(key)
        except MlflowException:
            fits = False
        else:
            fits = len(key) <= MAX_ENTITY_KEY_LENGTH
        if not fits and name not in self._left_out:
            self._left_out.add(name)
            some = ", ".join(repr(name[:60]) for name in sorted(self._left_out)[:20])
            self.tags({LEFT_OUT_TAG: f"{len(self._left_out)}: {some}"})
        return fits

    def _logged(self) -> set[tuple[str, int]]:
        if self._seen is None:
            keys = self._client.get_run(self.run_id).data.metrics
            points = ((key, self._client.get_metric_history(self.run_id, key)) for key in keys)
            self._seen = {(key, point.step) for key, history in points for point in history}
        return self._seen

    def tags(self, tags: Mapping[str, str]) -> None:
        with told_apart():
            self._client.log_batch(self.run_id, tags=[RunTag(key, value) for key, value in tags.items()])

    def joined(self, flow_run_id: str) -> int:
        """Note that this flow run works on it; counts, from 1, those that did so far."""
        with told_apart():
            known = [
                name for name in self._client.get_run(self.run_id).data.tags.get(FLOW_RUNS_TAG, "").split() if name
            ]
            names = known if flow_run_id in known else [*known, flow_run_id or "none"]
            self._client.set_tag(self.run_id, FLOW_RUNS_TAG, " ".join(names))
        return len(names)

    def text(self, text: str, artifact_path: str) -> None:
        with told_apart():
            self._client.log_text(self.run_id, text, artifact_path)

    def file(self, path: Path, folder: str) -> None:
        with told_apart():
            self._client.log_artifact(self.run_id, str(path), folder)

    def inputs(self, datasets: Sequence[Dataset]) -> None:
        with told_apart():
            log_inputs(self._client, self.run_id, datasets)

    def table(self, rows: Sequence[Mapping[str, Any]], artifact_path: str) -> None:
        with told_apart():
            log_table(self._client, self.run_id, rows, artifact_path)

    def model(self, made: MadeModel) -> None:
        with told_apart():
            log_model(self._client, self.run_id, made)

    def begin(self) -> None:
        """It goes on, whatever ended it before."""
        with told_apart():
            self._client.update_run(self.run_id, status="RUNNING")

    def end(self, status: str) -> None:
        """End it, and those of its children that are open; ``status`` is FINISHED, FAILED or KILLED.

        What has ended already stays as it ended.
        """
        with told_apart():
            info = self._client.get_run(self.run_id).info
            mine = f"tags.`{PARENT_TAG}` = '{self.run_id}' and attributes.status = 'RUNNING'"
            for child in self._client.search_runs([info.experiment_id], mine):
                self._client.set_terminated(child.info.run_id, status)
            if info.status == "RUNNING":
                self._client.set_terminated(self.run_id, status)

    def read(self, artifact_path: str) -> str | None:
        """An artifact's text, or None where the run has none of this name."""
        with told_apart():
            folder = artifact_path.rpartition("/")[0]
            if artifact_path not in {item.path for item in self._client.list_artifacts(self.run_id, folder or None)}:
                return None
            return Path(self._client.download_artifacts(self.run_id, artifact_path)).read_text()


class MlflowRuns:
    """The runs of one experiment. A run is known by what it is for, never by its name, which people may change."""

    def __init__(self, tracking_uri: str, experiment: str) -> None:
        """Raises TrackingUnavailable when the server does not answer or the experiment was deleted."""
        self._uri = tracking_uri
        self._client = mlflow_client(tracking_uri)
        with told_apart(f"MLflow at {tracking_uri}"):
            found = self._client.get_experiment_by_name(experiment)
            if found and found.lifecycle_stage == "deleted":
                raise TrackingUnavailable(
                    f"MLflow's experiment {experiment} is deleted; bring it back (mlflow experiments restore "
                    f"--experiment-id {found.experiment_id}) or name another one in tracking.experiment"
                )
            self._experiment_id: str = (
                found.experiment_id if found else self._client.create_experiment(experiment, tags=EXPERIMENT_TAGS)
            )
            # Whoever changes this look in MLflow's page keeps it changed.
            if found is None or VIEW_TAG not in found.tags:
                self._client.set_experiment_tag(self._experiment_id, VIEW_TAG, view_document())

    def open(self, run_name: str, role: str, tags: Mapping[str, str], parent_id: str = "") -> MlflowRun:
        """Find the run that has this role for the pipeline run ``run_name``, as it is, or begin one.

        ``tags`` set it apart from others of the role; with ``parent_id`` it is a child, as MLflow's pages show it.
        """
        with told_apart():
            run_id = self.find(run_name, role, tags, parent_id)
            if not run_id:
                name = "-".join([run_name, *([role, *tags.values()] if parent_id else [])])
                marks = _marks(run_name, role, tags, parent_id)
                run_id = self._the_one(self._client.create_run(self._experiment_id, run_name=name, tags=marks), marks)
        return self.run(run_id)

    def _the_one(self, made: Run, marks: Mapping[str, str]) -> str:
        """MLflow's client asks again where an answer is lost, and two may begin it at once: the oldest is kept."""
        run_id = self._oldest(marks) or made.info.run_id
        if run_id != made.info.run_id:
            self._client.delete_run(made.info.run_id)
        return run_id

    def run(self, run_id: str) -> MlflowRun:
        """A run by its id, as it is."""
        page = f"{self._uri}/#/experiments/{self._experiment_id}/runs/{run_id}{TRAINING_PAGES}"
        return MlflowRun(self._client, run_id, page)

    def find(self, run_name: str, role: str, tags: Mapping[str, str], parent_id: str = "") -> str:
        """The run's id, or an empty text; a run that was deleted is not found."""
        with told_apart():
            return self._oldest(_marks(run_name, role, tags, parent_id))

    def _oldest(self, marks: Mapping[str, str]) -> str:
        wanted = " and ".join(f"tags.`{key}` = {_quoted(value)}" for key, value in marks.items())
        oldest_first = ["attributes.start_time ASC"]
        found = self._client.search_runs([self._experiment_id], wanted, max_results=1, order_by=oldest_first)
        return found[0].info.run_id if found else ""


def _marks(run_name: str, role: str, tags: Mapping[str, str], parent_id: str) -> dict[str, str]:
    parent = {PARENT_TAG: parent_id} if parent_id else {}
    return {RUN_NAME_TAG: run_name, ROLE_TAG: role, **tags, **parent}


def _quoted(value: str) -> str:
    """A text in a search filter; MLflow's grammar has two quotation marks and no escapes."""
    return f'"{value}"' if "'" in value else f"'{value}'"


def metric_key(name: str) -> str:
    """A metric's name in the letters that MLflow takes everywhere; ``:40`` stands for ``@``, by UTF-8, so that no two
    names become one and each can be read back."""
    return _TO_ENCODE.sub(lambda found: "".join(f":{byte:02X}" for byte in found[0].encode()), name)


@contextmanager
def told_apart(who: str = "MLflow") -> Iterator[None]:
    """Its absence and its refusal, as the errors of this project."""
    try:
        yield
    except MlflowException as error:
        raise _as_ours(who, error, error.get_http_status_code()) from error
    except requests.RequestException as error:
        raise _as_ours(who, error, 503 if error.response is None else error.response.status_code) from error


def _as_ours(who: str, error: Exception, status: int) -> TrackingRefused | TrackingUnavailable:
    if status < 500 and status != 429:
        return TrackingRefused(f"{who} refused: {error}")
    return TrackingUnavailable(
        f"{who} does not answer ({error}); start it (locally: make up) or correct tracking.tracking_uri"
    )
