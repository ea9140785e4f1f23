"""Stages: the clusters that train and serve are made, or found, or were never ours to make (hosting.py)."""

from __future__ import annotations

from collections.abc import Mapping

from serving.settings import ServerSettings
from tasks.cluster.hosting import hosting_of
from tasks.cluster.owners import Owner
from tasks.cluster.settings import HostingSettings
from tasks.records import ImageRef
from tasks.run import RunContext
from tasks.stage import stage


@stage
def make_room_for_training(
    context: RunContext, settings: HostingSettings, server: ServerSettings, images: Mapping[str, ImageRef]
) -> None:
    """Serving is settled before hours are spent; raises RolloutFailed or ClusterNotReady with what is against it."""
    hosting_of(settings).make_room(_owner(context), server, images, context.page.say)


@stage
def create_training_cluster(context: RunContext, settings: HostingSettings, images: Mapping[str, ImageRef]) -> None:
    """The cluster that trains, ready; raises ClusterNotReady with what machines or pods say."""
    hosting_of(settings).training_up(_owner(context), images, context.page.say)


@stage
def release_training_cluster(context: RunContext, settings: HostingSettings) -> None:
    """The training cluster's machines are free again: serving may need their GPUs."""
    hosting_of(settings).training_down(_owner(context), context.page.say)


@stage
def create_serving_cluster(
    context: RunContext, settings: HostingSettings, server: ServerSettings, images: Mapping[str, ImageRef]
) -> float:
    """The cluster that serves, with its application; raises RolloutFailed.

    Returns for how many seconds its endpoint was away while the run trained.
    """
    return hosting_of(settings).serving_up(server, images, context.page.say)


def _owner(context: RunContext) -> Owner:
    return Owner(context.run_name, context.flow_run_id)
