"""Runs that there were, as MLflow remembers them. Looks only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlflow.entities import Run

from tasks.clients.mlflow_client import mlflow_client
from tasks.clients.mlflow_names import DECISION_TAG, PARENT_TAG, ROLE_TAG, RUN_NAME_TAG
from tasks.clients.mlflow_runs import told_apart


@dataclass(frozen=True)
class PastRun:
    """One run of the pipeline: its settings and what came of it."""

    name: str
    state: str
    """MLflow's word: RUNNING, FINISHED, FAILED, KILLED."""
    started_ms: int
    ended_ms: int | None
    params: dict[str, str]
    metrics: dict[str, float]
    """Last values, the latest attempt at training's among them."""
    decision: str
    """Of the gate; empty where it did not come to that."""
    run_id: str = ""

    @property
    def step(self) -> int:
        """The last step that was trained."""
        return int(self.metrics.get("trainer/global_step", 0))

    @property
    def best_solve_rate(self) -> float | None:
        return self.metrics.get("best/solve_rate", self.metrics.get("eval/solve_rate"))

    def param(self, name: str) -> str:
        """A setting by the last part of its name; empty where it has none."""
        return next((value for key, value in sorted(self.params.items()) if key.split(".")[-1] == name), "")


class RunHistory:
    """The pipeline runs of one experiment; raises TrackingUnavailable."""

    def __init__(self, tracking_uri: str, experiment: str) -> None:
        self._client, self._experiment = mlflow_client(tracking_uri), experiment

    def latest(self, most: int, state: str = "") -> list[PastRun]:
        """Newest first."""
        return self._found(f" and attributes.status = '{state}'" if state else "", most)

    def named(self, run_name: str) -> PastRun | None:
        found = self._found(f" and tags.`{RUN_NAME_TAG}` = '{run_name}'", 1)
        return found[0] if found else None

    def _found(self, more: str, most: int) -> list[PastRun]:
        with told_apart():
            experiment = self._client.get_experiment_by_name(self._experiment)
            if experiment is None:
                return []
            ids, newest = [experiment.experiment_id], ["attributes.start_time DESC"]
            wanted = f"tags.`{ROLE_TAG}` = 'pipeline'{more}"
            runs = self._client.search_runs(ids, wanted, max_results=most, order_by=newest)
            return [_past(run, self._children(ids, run)) for run in runs]

    def _children(self, ids: list[str], run: Run) -> Sequence[Run]:
        mine = f"tags.`{PARENT_TAG}` = '{run.info.run_id}'"
        return self._client.search_runs(ids, mine, order_by=["attributes.start_time ASC"])


def _past(run: Run, children: Sequence[Run]) -> PastRun:
    metrics = {key: value for child in children for key, value in child.data.metrics.items()}
    return PastRun(
        name=run.data.tags.get(RUN_NAME_TAG, run.info.run_name or ""),
        state=run.info.status,
        started_ms=run.info.start_time,
        ended_ms=run.info.end_time,
        params=dict(run.data.params),
        metrics={**metrics, **run.data.metrics},
        decision=run.data.tags.get(DECISION_TAG, ""),
        run_id=run.info.run_id,
    )
