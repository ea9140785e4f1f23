"""Stage: take away what a run leaves behind, and say what is still there and what it costs an hour.

Three doors lead here: the end of the flow, whatever it was; the `cleanup` deployment, started by hand or by the event
of a flow run that failed, crashed or was cancelled. All call it with the run's name, and repeating it is harmless.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from prefect import get_run_logger, task
from prefect.artifacts import create_table_artifact

from serving.settings import ServerSettings
from tasks.adapters.aws import HyperPodMachines, PodIdentity
from tasks.adapters.kuberay import KubeRay
from tasks.adapters.mlflow_runs import MlflowRuns
from tasks.adapters.ray_jobs import RayJobs
from tasks.adapters.registry import registry_of
from tasks.hosting import HostingSettings
from tasks.hyperpod_settings import HyperPodSettings
from tasks.leftovers import Adapters, Identity, Jobs, LeftPart, Machines, RayResources, clean
from tasks.records import Leftover, TrackedRun
from tasks.settings import CleanupSettings, ClusterSettings, TrackingSettings


@task
def clean_up(
    settings: CleanupSettings,
    hosting: HostingSettings,
    cluster: ClusterSettings,
    server: ServerSettings,
    tracking: TrackingSettings,
    run_name: str,
    dry_run: bool,
) -> list[Leftover]:
    """Remove the parts that the settings name, report the rest; what could not be removed is raised together."""
    logger = get_run_logger()
    parts = parts_of(settings, hosting, cluster, server, tracking)
    left = clean(parts, settings.remove, run_name, dry_run, logger.info)
    rows = [thing.model_dump() for thing in left]
    create_table_artifact(table=rows, key=f"{run_name}-left", description="What of this run still exists")
    logger.info("%d things of %s are left; together %.2f USD an hour", len(left), run_name, usd_per_h(left))
    return left


@contextmanager
def cleaned_up_after(
    settings: CleanupSettings,
    hosting: HostingSettings,
    cluster: ClusterSettings,
    server: ServerSettings,
    tracking: TrackingSettings,
    run_name: str,
    tracked: TrackedRun,
) -> Iterator[None]:
    """Clean up when the block ends, however it ends; what is left goes to MLflow.

    A clean-up that fails does not hide the error that ended the block, and makes a block that succeeded fail.
    """
    try:
        yield
    except BaseException:
        try:
            _clean_and_log(settings, hosting, cluster, server, tracking, run_name, tracked)
        except Exception as error:
            get_run_logger().error("clean-up after the failure below was not complete: %s", error)
        raise
    _clean_and_log(settings, hosting, cluster, server, tracking, run_name, tracked)


def _clean_and_log(
    settings: CleanupSettings,
    hosting: HostingSettings,
    cluster: ClusterSettings,
    server: ServerSettings,
    tracking: TrackingSettings,
    run_name: str,
    tracked: TrackedRun,
) -> None:
    left = clean_up(settings, hosting, cluster, server, tracking, run_name, dry_run=False)
    document = json.dumps([thing.model_dump() for thing in left], indent=1)
    MlflowRuns(tracking.tracking_uri, tracking.experiment).log_text(tracked.parent_run_id, document, "left.json")


def parts_of(
    settings: CleanupSettings,
    hosting: HostingSettings,
    cluster: ClusterSettings,
    server: ServerSettings,
    tracking: TrackingSettings,
) -> list[LeftPart]:
    """Jobs first, then serving before training, then what pods used; adapters outlive all of them."""
    jobs = Jobs(lambda: RayJobs(cluster.jobs_address), cluster.timeout_s)
    adapters = Adapters(
        boto3.client("s3"), server.adapters_uri, lambda: champions(tracking, server), settings.usd_per_gb_month_s3
    )
    if not isinstance(hosting, HyperPodSettings):
        return [jobs, adapters]
    kube = KubeRay(hosting.kubeconfig)
    return [
        jobs,
        RayResources("serving", hosting, kube),
        RayResources("training", hosting, kube),
        Identity(hosting, PodIdentity(hosting.region, hosting.eks_cluster)),
        adapters,
        Machines(hosting, HyperPodMachines(hosting.region, hosting.hyperpod_cluster)),
    ]


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
