"""The AWS run's Ray clusters by hand: up before a run, and whatever a run left behind away after it.

cluster-up needs a Prefect API and a kubeconfig that leads to the EKS cluster (hosting.kubeconfig); cleanup needs what
its settings name: the Ray Jobs API if it still answers, MLflow for the champion, S3, and on AWS the kubeconfig.
"""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.knobs import CleanupKnobs, ClusterUpKnobs
from flows.settings.clusters import CleanupFlowSettings, CleanupPlatform, ClusterUpPlatform, ClusterUpSettings
from tasks.cleanup.clean_up import clean_up, usd_per_h
from tasks.cluster.create import create_training_cluster
from tasks.evidence.tracking import untracked_run


@flow(name="cluster-up", retries=0)
def cluster_up(knobs: ClusterUpKnobs, platform: ClusterUpPlatform) -> str:
    """Create the RayCluster that trains, or find it, and wait until it is ready."""
    settings = ClusterUpSettings.of(platform, knobs)
    create_training_cluster(untracked_run(settings.run_name), settings.hosting, {})
    return f"RayCluster {settings.hosting.namespace}/{settings.hosting.train_cluster} is ready"


@flow(name="cleanup", retries=0, flow_run_name="cleanup-{knobs.run_name}")
def cleanup(knobs: CleanupKnobs, platform: CleanupPlatform) -> dict[str, Any]:
    """Remove what the settings name of a run's remains; returns what still exists and what it costs an hour."""
    settings = CleanupFlowSettings.of(platform, knobs)
    left = clean_up(untracked_run(settings.run_name), settings, settings.dry_run)
    return {"left": [thing.model_dump() for thing in left], "usd_per_h": round(usd_per_h(left), 2)}
