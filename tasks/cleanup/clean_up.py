"""Stage: take away what a run leaves behind, and say what is still there and what it costs an hour.

Three doors lead here: the end of the flow, whatever it was; the `cleanup` deployment, started by hand or by the event
of a flow run that failed, crashed or was cancelled. All call it with the run's name, and repeating it is harmless.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import boto3
from prefect import get_run_logger, task
from prefect.artifacts import create_table_artifact

from serving.settings import ServerSettings
from tasks.cleanup.in_aws import Adapters, Identity, Images, Machines, RayResources, images_in_use
from tasks.cleanup.in_ray import Checkpoints, Jobs
from tasks.cleanup.parts import LeftPart, Say, clean
from tasks.cleanup.settings import CleanupScope
from tasks.clients.mlflow_runs import MlflowRuns
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.settings import HyperPodSettings
from tasks.image.ecr import Ecr
from tasks.image.settings import BuiltImages
from tasks.jobs.ray_jobs import RayJobs
from tasks.records import Leftover, TrackedRun
from tasks.release.aliases import registry_of
from tasks.settings import TrackingSettings


@task
def clean_up(scope: CleanupScope, run_name: str, dry_run: bool) -> list[Leftover]:
    """Remove the parts that the settings name, report the rest; what could not be removed is raised together."""
    logger = get_run_logger()
    left = clean(parts_of(scope, logger.info), scope.cleanup.remove, run_name, dry_run, logger.info)
    rows = [thing.model_dump() for thing in left]
    create_table_artifact(table=rows, key=f"{run_name}-left", description="What of this run still exists")
    logger.info("%d things of %s are left; together %.2f USD an hour", len(left), run_name, usd_per_h(left))
    return left


@contextmanager
def cleaned_up_after(scope: CleanupScope, run_name: str, tracked: TrackedRun) -> Iterator[None]:
    """Clean up when the block ends, however it ends; what is left goes to MLflow.

    A clean-up that fails does not hide the error that ended the block, and makes a block that succeeded fail.
    """
    try:
        yield
    except BaseException:
        try:
            _clean_and_log(scope, run_name, tracked)
        except Exception as error:
            get_run_logger().error("clean-up after the failure below was not complete: %s", error)
        raise
    _clean_and_log(scope, run_name, tracked)


def _clean_and_log(scope: CleanupScope, run_name: str, tracked: TrackedRun) -> None:
    left = clean_up(scope, run_name, dry_run=False)
    document = json.dumps([thing.model_dump() for thing in left], indent=1)
    mlflow = MlflowRuns(scope.tracking.tracking_uri, scope.tracking.experiment)
    mlflow.log_text(tracked.parent_run_id, document, "left.json")


def parts_of(scope: CleanupScope, say: Say) -> list[LeftPart]:
    """Jobs first, then what only the cluster can reach, then serving before training, then what pods used.

    A job is needed to look at checkpoints: only a clean-up that is to remove them submits it.
    """
    cleanup, hosting, cluster = scope.cleanup, scope.hosting, scope.cluster

    def connect() -> RayJobs:
        return RayJobs(cluster.jobs_address)

    parts: list[LeftPart] = [Jobs(connect, cluster.timeout_s)]
    if "checkpoints" in cleanup.remove:
        parts.append(Checkpoints(connect, scope.job, scope.shared_dir, say))
    kept = partial(champions, scope.tracking, scope.server)
    adapters = Adapters(boto3.client("s3"), scope.server.adapters_uri, kept, cleanup.usd_per_gb_month_s3)
    if not isinstance(hosting, HyperPodSettings):
        return [*parts, adapters]
    kube = KubeRay(hosting.kubeconfig)
    return [
        *parts,
        RayResources("serving", hosting, kube),
        RayResources("training", hosting, kube),
        Identity(hosting, PodIdentity(hosting.region, hosting.eks_cluster)),
        adapters,
        *_images(scope, kube, hosting),
        Machines(hosting, HyperPodMachines(hosting.region, hosting.hyperpod_cluster)),
    ]


def _images(scope: CleanupScope, kube: KubeRay, hosting: HyperPodSettings) -> list[Images]:
    image, cleanup = scope.image, scope.cleanup
    if not isinstance(image, BuiltImages) or image.login != "ecr":
        return []
    ecr = Ecr(image.region, image.registry.partition("://")[2])
    repositories = [spec.repository for spec in image.images.values()]
    in_use = partial(images_in_use, hosting, kube)
    return [Images(ecr, repositories, in_use, cleanup.keep_images, cleanup.usd_per_gb_month_ecr)]


def champions(tracking: TrackingSettings, server: ServerSettings) -> dict[str, str]:
    """Adapters that stay whatever is asked, and why."""
    registry = registry_of(tracking, server)
    aliases = {"champion": registry.champion(), "previous": registry.previous()}
    return {name: f"it is {alias}" for alias, name in aliases.items() if name}


def usd_per_h(left: list[Leftover]) -> float:
    """What is left costs together. Pods run on machines that are counted already where machines are listed."""
    machines = [thing.usd_per_h for thing in left if thing.part == "machines"]
    pods = [thing.usd_per_h for thing in left if thing.part in ("serving", "training")]
    others = [thing.usd_per_h for thing in left if thing.part not in ("machines", "serving", "training")]
    return (sum(machines) if machines else sum(pods)) + sum(others)
