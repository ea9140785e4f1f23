"""Stages: the clusters that train and serve are made, or found, or were never ours to make (hosting.py)."""

from __future__ import annotations

from collections.abc import Mapping

from prefect import get_run_logger, task

from serving.settings import ServerSettings
from tasks.cluster.hosting import HostingSettings, hosting_of
from tasks.readiness.settings import ReadinessSettings
from tasks.records import ImageRef


@task
def create_training_cluster(
    settings: HostingSettings, readiness: ReadinessSettings, run_name: str, images: Mapping[str, ImageRef]
) -> None:
    """The cluster that trains, ready; raises ClusterNotReady with what machines or pods say."""
    hosting_of(settings, readiness.timeout_s).training_up(run_name, images, get_run_logger().info)


@task
def release_training_cluster(settings: HostingSettings, readiness: ReadinessSettings, run_name: str) -> None:
    """The training cluster's machines are free again: serving may need their GPUs."""
    hosting_of(settings, readiness.timeout_s).training_down(run_name, get_run_logger().info)


@task
def create_serving_cluster(
    settings: HostingSettings, readiness: ReadinessSettings, server: ServerSettings, images: Mapping[str, ImageRef]
) -> None:
    """The cluster that serves, with its application; raises RolloutFailed."""
    hosting_of(settings, readiness.timeout_s).serving_up(server, images, get_run_logger().info)
