"""Stages: bring the AWS run's RayCluster up, and take everything of Ray down again. Both find what there is by name."""

from __future__ import annotations

from collections.abc import Callable

from prefect import get_run_logger, task
from prefect.artifacts import create_table_artifact

from tasks.adapters.kuberay import KubeRay, wait_for_cluster, wait_until_gone
from tasks.hyperpod_settings import HyperPodSettings
from tasks.manifests import ray_cluster, service_account


@task
def create_cluster(settings: HyperPodSettings, run_name: str) -> None:
    """The service account and the RayCluster, ready; raises ClusterNotReady with the pods' own words."""
    bring_up(KubeRay(settings.kubeconfig), settings, run_name, get_run_logger().info)


@task
def remove_clusters(settings: HyperPodSettings, dry_run: bool) -> dict[str, float]:
    """Delete RayService and RayCluster, in this order; returns what is still there with its dollars per hour."""
    left = take_down(KubeRay(settings.kubeconfig), settings, dry_run, get_run_logger().info)
    rows = [{"what": what, "USD per hour": usd_per_h} for what, usd_per_h in left.items()]
    create_table_artifact(table=rows, key="clusters-left", description="Ray resources that still exist")
    return left


def bring_up(kube: KubeRay, settings: HyperPodSettings, run_name: str, say: Callable[[str], object]) -> None:
    """Apply and wait. Pods get their AWS credentials when they are admitted, so the account is there before them."""
    for manifest in (service_account(settings), ray_cluster(settings, run_name)):
        done = kube.apply(manifest)
        say(f"{manifest['kind']} {settings.namespace}/{manifest['metadata']['name']}: {done}")
    workers = settings.workers
    wait_for_cluster(
        kube, settings.namespace, settings.train_cluster, workers.count, settings.ready_timeout_s, settings.poll_s, say
    )
    gpus = workers.count * workers.num_gpus
    say(f"RayCluster {settings.namespace}/{settings.train_cluster} is ready: {workers.count} workers, {gpus} GPUs")


def take_down(
    kube: KubeRay, settings: HyperPodSettings, dry_run: bool, say: Callable[[str], object]
) -> dict[str, float]:
    """Delete what there is and wait until it is gone; with ``dry_run`` only look. Returns the leftovers."""
    for kind, name in _resources(settings):
        where = f"{kind} {settings.namespace}/{name}"
        if dry_run:
            say(f"{where}: {'would be deleted' if kube.look(kind, settings.namespace, name) else 'not there'}")
        elif kube.delete(kind, settings.namespace, name):
            say(f"{where}: deleting")
            wait_until_gone(kube, kind, settings.namespace, name, settings.ready_timeout_s, settings.poll_s)
            say(f"{where}: gone")
        else:
            say(f"{where}: not there")
    return leftovers(kube, settings)


def leftovers(kube: KubeRay, settings: HyperPodSettings) -> dict[str, float]:
    """Ray resources that still exist, each with the price of the machines that it asks for, in dollars per hour."""
    head, worker = settings.head.usd_per_h, settings.workers.usd_per_h
    prices = {"RayCluster": head + settings.workers.count * worker, "RayService": head + worker}
    return {
        f"{kind} {settings.namespace}/{name}": round(prices[kind], 2)
        for kind, name in _resources(settings)
        if kube.look(kind, settings.namespace, name) is not None
    }


def _resources(settings: HyperPodSettings) -> list[tuple[str, str]]:
    """Serving first: a RayService that lost its cluster would make another."""
    return [("RayService", settings.serve_name), ("RayCluster", settings.train_cluster)]
