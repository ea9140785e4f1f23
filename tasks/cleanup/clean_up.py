"""Stage: take away what a run leaves behind, and say what is still there and what it costs an hour.

Three doors lead here: the end of the flow, whatever it was; the `cleanup` deployment, started by hand or by the event
of a flow run that failed, crashed or was cancelled. All call it with the run's name, the first and the last with the
flow run that ended too, and repeating it is harmless.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

from serving.store import s3_client
from tasks.cleanup.in_aws import Adapters, Identity, Images, Machines
from tasks.cleanup.in_kubernetes import RayResources, Suspension, images_in_use
from tasks.cleanup.in_ray import Checkpoints, Jobs
from tasks.cleanup.order import Order
from tasks.cleanup.parts import NOT_LOOKED_AT, Leftover, LeftPart, clean
from tasks.cleanup.settings import CleanupScope
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.ray_settings import RayOnKubernetes
from tasks.cluster.settings import HyperPodSettings
from tasks.errors import AttemptsUnknown
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
    order = order_of(context, scope.ended_flow_run)
    parts, left = parts_of(context, scope, order), list[Leftover]()
    try:
        clean(parts, scope.cleanup.remove, context.run_name, dry_run, context.page.say, left, order.overtaken)
    except Exception as incomplete:
        try:
            tell(context, left)
        except Exception as error:
            incomplete.add_note(f"what is left could not be told: {error}")
        raise
    tell(context, left)
    return left


def order_of(context: RunContext, ended_flow_run: str) -> Order:
    """The order to clean up after this flow run; raises AttemptsUnknown.

    A flow run that ends cleans up after itself even where Prefect does not answer: what it started is its own.
    """
    if not ended_flow_run:
        return Order()
    is_its_own = ended_flow_run == context.flow_run_id
    try:
        return Order(ended_flow_run, context.attempts(), is_its_own)
    except AttemptsUnknown as error:
        if not is_its_own:
            raise
        context.page.warn(f"cleaning up without knowing of other flow runs: {error}")
        return Order(ended_flow_run, (), is_its_own)


def tell(context: RunContext, left: Sequence[Leftover]) -> None:
    """On the run's page, in MLflow and in the log."""
    rows = [thing.model_dump() for thing in left]
    context.page.table("leftovers", rows, "What of this run still exists")
    context.run.text(json.dumps(rows, indent=1), "left.json")
    unseen = sum(thing.found == NOT_LOOKED_AT for thing in left)
    assumed = f", {unseen} of them {NOT_LOOKED_AT} (their price is assumed)" if unseen else ""
    cost = usd_per_h(left)
    context.page.say(f"{len(left)} things of {context.run_name} are left{assumed}; together {cost:.2f} USD an hour")
    count = "1 thing is left" if len(left) == 1 else f"{len(left)} things are left"
    context.stages.found(f"{count}{assumed}, {cost:.2f} USD an hour" if left else "nothing is left")


@contextmanager
def cleaned_up_after(context: RunContext, scope: CleanupScope) -> Iterator[None]:
    """Clean up when the block ends, however it ends; what is left goes to MLflow.

    A clean-up that fails does not hide the error that ended the block, and makes a block that succeeded fail.
    """
    own = scope.model_copy(update={"ended_flow_run": context.flow_run_id})
    try:
        yield
    except BaseException as first:
        try:
            clean_up(context, own, dry_run=False)
        except Exception as error:
            first.add_note(f"clean-up after this was not complete: {error}")
            _warn(context, first, f"clean-up after the failure below was not complete: {error}")
        raise
    clean_up(context, own, dry_run=False)


def _warn(context: RunContext, first: BaseException, text: str) -> None:
    """A page that cannot be written on does not hide the first error either."""
    try:
        context.page.warn(text)
    except Exception as error:
        first.add_note(f"the page did not take that: {error}")


def parts_of(context: RunContext, scope: CleanupScope, order: Order) -> list[LeftPart]:
    """Jobs first, then what only the cluster can reach, then serving before training, then what pods used.

    A job is needed to look at checkpoints: only a clean-up that is to remove them submits it.
    """
    cleanup, hosting, cluster = scope.cleanup, scope.hosting, scope.cluster

    def connect() -> RayJobs:
        return RayJobs(cluster.jobs_address, marks=context.marks)

    @cache
    def kube() -> KubeRay:
        """Made at the first look, so that a way to Kubernetes that is lost keeps no other part from its end."""
        assert isinstance(hosting, RayOnKubernetes)
        return KubeRay(hosting.kubeconfig, hosting.context)

    def is_gone() -> bool:
        """Whether somebody knows that there is no cluster; silence alone does not say so."""
        if not isinstance(hosting, RayOnKubernetes):
            return False
        return kube().look("RayCluster", hosting.namespace, hosting.train_cluster) is None

    parts: list[LeftPart] = [Jobs(connect, is_gone, order, cluster.timeout_s)]
    if "checkpoints" in cleanup.remove:
        parts.append(Checkpoints(connect, scope.job, scope.shared_dir, JobNews(context)))
    kept = partial(champions, ChampionSettings(server=scope.server, tracking=scope.tracking))
    adapters = Adapters(s3_client(), scope.server.adapters_uri, kept, cleanup.usd_per_gb_month_s3)
    if not isinstance(hosting, RayOnKubernetes):
        return [*parts, adapters]
    parts += [
        RayResources("serving", hosting, kube, order),
        RayResources("training", hosting, kube, order),
        Suspension(hosting, kube, order),
    ]
    if not isinstance(hosting, HyperPodSettings):
        return [*parts, adapters]
    return [
        *parts,
        Identity(hosting, PodIdentity(hosting.region, hosting.eks_cluster), kube),
        adapters,
        *_images(scope, kube, hosting),
        Machines(hosting, HyperPodMachines(hosting.region, hosting.hyperpod_cluster)),
    ]


def _images(scope: CleanupScope, kube: Callable[[], KubeRay], hosting: HyperPodSettings) -> list[Images]:
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


def usd_per_h(left: Sequence[Leftover]) -> float:
    """What is left costs together. Pods run on machines that are counted already where machines are listed."""
    machines = [thing.usd_per_h for thing in left if thing.part == "machines"]
    pods = [thing.usd_per_h for thing in left if thing.part in ("serving", "training")]
    others = [thing.usd_per_h for thing in left if thing.part not in ("machines", "serving", "training")]
    return (sum(machines) if machines else sum(pods)) + sum(others)
