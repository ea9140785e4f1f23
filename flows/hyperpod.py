"""The AWS run's Ray clusters by hand: up before a run, down after it.

Needs a Prefect API and a kubeconfig that leads to the EKS cluster (settings.hyperpod.kubeconfig).
"""

from __future__ import annotations

from prefect import flow

from flows.settings import ClusterDownSettings, ClusterUpSettings
from tasks.hyperpod import create_cluster, remove_clusters


@flow(name="cluster-up")
def cluster_up(settings: ClusterUpSettings) -> str:
    """Create the RayCluster that trains, or find it, and wait until it is ready."""
    create_cluster(settings.hyperpod, settings.run_name)
    return f"RayCluster {settings.hyperpod.namespace}/{settings.hyperpod.train_cluster} is ready"


@flow(name="cluster-down")
def cluster_down(settings: ClusterDownSettings) -> dict[str, float]:
    """Delete the Ray clusters, training and serving; returns what still exists, in dollars per hour."""
    return remove_clusters(settings.hyperpod, settings.dry_run)
