"""The retrain flow: one page, read from top to bottom.

    prepare data -> ensure cluster -> train (Ray job: GRPO, evaluations, exports) -> pick best -> report
        MazesRef      ClusterRef        TrainedRun                                   BestStep

Needs a Prefect API, MLflow (settings.tracking) and a Ray cluster (settings.cluster). Nothing is cached: a second
run of the same name takes up the Ray job, the MLflow run and the checkpoints of the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from flows.settings import RetrainSettings
from tasks.best import pick_best
from tasks.cluster import ensure_cluster
from tasks.data import prepare_data
from tasks.report import write_report
from tasks.tracking import tracked_run
from tasks.train import run_training


@flow(name="retrain", flow_run_name=lambda: run_name_of(flow_run.parameters["settings"]))
def retrain(settings: RetrainSettings) -> dict[str, Any]:
    """Retrain the maze agent and report what came of it."""
    run_name = run_name_of(settings)
    timed = StageTimer()
    mazes = timed(prepare_data)(settings.train.data)
    cluster = timed(ensure_cluster)(settings.cluster)
    with tracked_run(settings.tracking, run_name, settings.model_dump(mode="json")) as tracked:
        run = timed(run_training)(settings.train, settings.job, settings.tracking, run_name, mazes, cluster, tracked)
        best = timed(pick_best)(run)
        return write_report(
            settings.report,
            settings.tracking,
            settings.train.data.maze,
            mazes,
            run,
            best,
            tracked,
            timed.seconds,
        )


class StageTimer:
    """Wall time of each stage, by its name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__[**P, R](self, stage: Callable[P, R]) -> Callable[P, R]:
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            started = time.monotonic()
            try:
                return stage(*args, **kwargs)
            finally:
                self.seconds[getattr(stage, "name", str(stage))] = time.monotonic() - started

        return run


def run_name_of(settings: RetrainSettings) -> str:
    """The run's name: as set, or profile and scheduled start, so that a retry of a flow run keeps it."""
    return settings.run_name or f"{settings.report.profile}-{flow_run.scheduled_start_time:%Y%m%d-%H%M%S}"
