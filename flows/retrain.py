"""The retrain flow: one page, read from top to bottom.

    prepare data -> build images -> create training cluster -> ensure cluster -> check readiness -> train -> pick best
        MazesRef      ImageRefs                                  ClusterRef          Ray job: GRPO, evaluations, exports
    -> publish to S3 -> probe the training side -> release its cluster -> create serving cluster -> ensure endpoint
       PublishedAdapter                                                                             ServedEndpoint
    -> evaluate through it -> prove -> judge -> promote -> report -> clean up, whatever happened
         EvalReport       Certificate Verdict ChampionChange           Leftovers

Needs a Prefect API, MLflow (settings.tracking), S3 (the usual AWS chain), and Ray clusters that others keep or an EKS
cluster to make them on (settings.hosting). Nothing is cached: a second run of the same name takes up the images, the
Ray jobs, the MLflow run, the checkpoints and the adapter of the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from flows.settings import RetrainSettings
from serving.app import adapter_model_id
from tasks.cleanup.clean_up import cleaned_up_after
from tasks.cluster.create import create_serving_cluster, create_training_cluster, release_training_cluster
from tasks.cluster.wait import ensure_cluster
from tasks.evidence.report import write_report
from tasks.evidence.tracking import tracked_run
from tasks.image.build import build_images
from tasks.readiness.check import check_readiness
from tasks.records import BestStep, ClusterRef, ImageRef, ServedRun, TrackedRun
from tasks.release.champion import current_champion, judge_adapter, promote_adapter
from tasks.release.endpoint import ensure_endpoint
from tasks.release.evaluate import evaluate_endpoint
from tasks.release.proof import probe_training_side, prove_adapter, require_proof
from tasks.release.publish import publish_adapter
from tasks.training.best import pick_best
from tasks.training.data import prepare_data
from tasks.training.train import run_training


@flow(name="retrain", flow_run_name=lambda: run_name_of(flow_run.parameters["settings"]))
def retrain(settings: RetrainSettings) -> dict[str, Any]:
    """Retrain the maze agent, serve the best step, promote it if it is proven and better, and report.

    Raises NotProven, after the report is written, when the endpoint serves something else than was trained.
    """
    run_name = run_name_of(settings)
    timed = StageTimer()
    mazes = timed(prepare_data)(settings.train.data)
    with (
        tracked_run(settings.tracking, run_name, settings.model_dump(mode="json")) as tracked,
        cleaned_up_after(settings.scope, run_name, tracked),
    ):
        images = timed(build_images)(settings.image, settings.tracking, tracked)
        timed(create_training_cluster)(settings.hosting, settings.readiness, run_name, images)
        cluster = timed(ensure_cluster)(settings.cluster)
        timed(check_readiness)(
            settings.readiness,
            settings.hosting,
            settings.train,
            settings.job,
            settings.serve,
            settings.tracking,
            run_name,
            cluster,
            tracked,
        )
        run = timed(run_training)(settings.train, settings.job, settings.tracking, run_name, mazes, cluster, tracked)
        best = timed(pick_best)(run)
        served = serve_and_judge(settings, run_name, images, cluster, best, tracked, timed)
        report = write_report(
            settings.report,
            settings.tracking,
            settings.train.data.maze,
            mazes,
            run,
            best,
            served,
            tracked,
            timed.seconds,
            timed.wall_s,
        )
        require_proof(served.certificate)
        return report


def serve_and_judge(
    settings: RetrainSettings,
    run_name: str,
    images: Mapping[str, ImageRef],
    cluster: ClusterRef,
    best: BestStep,
    tracked: TrackedRun,
    timed: StageTimer,
) -> ServedRun:
    """From the best step's export to a name that clients use - or to the reason why it is not that."""
    server, play, data = settings.serve.server, settings.play, settings.train.data
    adapter = timed(publish_adapter)(
        server, settings.job, settings.tracking, run_name, settings.train.model_path, best, cluster, tracked
    )
    trained = timed(probe_training_side)(
        settings.proof, play, settings.job, settings.train, settings.tracking, run_name, best, cluster, tracked
    )
    timed(release_training_cluster)(settings.hosting, settings.readiness, run_name)
    timed(create_serving_cluster)(settings.hosting, settings.readiness, server, images)
    endpoint = timed(ensure_endpoint)(settings.serve)
    candidate = timed(evaluate_endpoint)(play, data, endpoint.url, adapter.model_id, adapter.step)
    base = timed(evaluate_endpoint)(play, data, endpoint.url, endpoint.base_model_id, 0)
    certificate = timed(prove_adapter)(
        settings.proof, play, data.maze, settings.tracking, adapter, endpoint, trained, best.best, candidate, tracked
    )
    champion = current_champion(settings.tracking, server, other_than=adapter.name)
    former = (
        timed(evaluate_endpoint)(play, data, endpoint.url, adapter_model_id(server, champion), 0) if champion else None
    )
    verdict = timed(judge_adapter)(settings.gate, candidate, base, former)
    change = timed(promote_adapter)(settings.tracking, server, adapter, certificate, verdict, tracked.child_run_id)
    return ServedRun(
        adapter=adapter,
        endpoint=endpoint,
        certificate=certificate,
        verdict=verdict,
        change=change,
    )


class StageTimer:
    """Wall time of each stage, by its name; a stage that runs twice counts twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = time.monotonic()

    @property
    def wall_s(self) -> float:
        """Since the timer was made."""
        return time.monotonic() - self._started

    def __call__[**P, R](self, stage: Callable[P, R]) -> Callable[P, R]:
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            started = time.monotonic()
            try:
                return stage(*args, **kwargs)
            finally:
                name = getattr(stage, "name", str(stage))
                self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

        return run


def run_name_of(settings: RetrainSettings) -> str:
    """The run's name: as set, or profile and scheduled start, so that a retry of a flow run keeps it."""
    return settings.run_name or f"{settings.report.profile}-{flow_run.scheduled_start_time:%Y%m%d-%H%M%S}"
