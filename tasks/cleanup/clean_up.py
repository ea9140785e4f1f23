"""Stage: take away what a run leaves behind, and say what is still there and what it costs an hour.

Three doors lead here: the end of the flow, whatever it was; the `cleanup` deployment, started by hand or by the event
of a flow run that failed, crashed or was cancelled. All call it with the run's name, and repeating it is harmless.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from serving.store import s3_client
from tasks.cleanup.in_aws import Adapters, Identity, Images, Machines, RayResources, images_in_use
from tasks.cleanup.in_ray import Checkpoints, Jobs
from tasks.cleanup.parts import Leftover, LeftPart, clean
from tasks.cleanup.settings import CleanupScope
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.settings import HyperPodSettings
from tasks.image.ecr import Ecr
from tasks.image.settings import BuiltImages
from tasks.jobs.news import JobNews
from tasks.jobs.ray_jobs import RayJobs
from tasks.release.aliases import registry_of
from tasks.release.settings import ChampionSettings
from tasks.run import RunContext
from tasks.stage import stage


@stage
def clean_up(context: RunContext, scope: CleanupScope, dry_run: bool) -> list[Leftover]:
    """Remove the parts that the settings name, report the rest; what could not be removed is raised together."""
    run_name, say = context.run_name, context.page.say
    left = clean(parts_of(context, scope), scope.cleanup.remove, run_name, dry_run, say)
    rows = [thing.model_dump() for thing in left]
    context.page.table("left", rows, "What of this run still exists")
    context.run.text(json.dumps(rows, indent=1), "left.json")
    say(f"{len(left)} things of {run_name} are left; together {usd_per_h(left):.2f} USD an hour")
    return left


@contextmanager
def cleaned_up_after(context: RunContext, scope: CleanupScope) -> Iterator[None]:
    """Clean up when the block ends, however it ends; what is left goes to MLflow.

    A clean-up that fails does not hide the error that ended the block, and makes a block that succeeded fail.
    """
    try:
        yield
    except BaseException:
        try:
            clean_up(context, scope, dry_run=False)
        except Exception as error:
            context.page.warn(f"clean-up after the failure below was not complete: {error}")
        raise
    clean_up(context, scope, dry_run=False)


def parts_of(context: RunContext, scope: CleanupScope) -> list[LeftPart]:
    """Jobs first, then what only the cluster can reach, then serving before training, then what pods used.

    A job is needed to look at checkpoints: only a clean-up that is to remove them submits it.
    """
    cleanup, hosting, cluster = scope.cleanup, scope.hosting, scope.cluster

    def connect() -> RayJobs:
        return RayJobs(cluster.jobs_address)

    parts: list[LeftPart] = [Jobs(connect, cluster.timeout_s)]
    if "checkpoints" in cleanup.remove:
        parts.append(Checkpoints(connect, scope.job, scope.shared_dir, JobNews(context)))
    kept = partial(champions, ChampionSettings(server=scope.server, tracking=scope.tracking))
    adapters = Adapters(s3_client(), scope.server.adapters_uri, kept, cleanup.usd_per_gb_month_s3)
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


def champions(settings: ChampionSettings) -> dict[str, str]:
    """Adapters that stay whatever is asked, and why."""
    return registry_of(settings).kept()


def usd_per_h(left: list[Leftover]) -> float:
    """What is left costs together. Pods run on machines that are counted already where machines are listed."""
    machines = [thing.usd_per_h for thing in left if thing.part == "machines"]
    pods = [thing.usd_per_h for thing in left if thing.part in ("serving", "training")]
    others = [thing.usd_per_h for thing in left if thing.part not in ("machines", "serving", "training")]
    return (sum(machines) if machines else sum(pods)) + sum(others)
