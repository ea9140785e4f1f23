"""Checks of Ray clusters on Kubernetes, whoever keeps the machines: rights, places for pods, the RayCluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tasks.checks import ToCheck, Unready
from tasks.cluster.kube_waits import cluster_shortfall
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.manifests import serving_pods, training_pods
from tasks.cluster.placement import PodAsk, Room, homeless, place
from tasks.cluster.ray_settings import OwnMachines, RayOnKubernetes

PLACE_REMEDY = (
    "free the machine from what holds it, take more or larger machines (hosting's groups), or let pods ask for less "
    "(num_cpus, memory_gib)"
)
Verbs = Mapping[tuple[str, str], tuple[str, ...]]
"""API group and resource -> verbs."""

ASKED: Verbs = {
    ("ray.io", "rayclusters"): ("get", "create", "patch", "delete"),
    ("ray.io", "rayservices"): ("get", "create", "patch", "delete"),
    ("", "pods"): ("list",),
    ("", "events"): ("list",),
}
"""What a run asks of Kubernetes in its namespace, from first stage to clean-up."""
ASKED_EVERYWHERE: Verbs = {("", "nodes"): ("list",), ("", "pods"): ("list",)}
"""The same for all namespaces: what is free of a machine is only known with everybody's pods."""


def access_check(settings: RayOnKubernetes, kube: KubeRay, asked: Verbs, remedy: str) -> ToCheck:
    return ToCheck(
        "Kubernetes lets this identity do what the run will ask",
        lambda: allowed(settings.namespace, kube, asked),
        remedy,
    )


def allowed(namespace: str, kube: KubeRay, asked: Verbs) -> str:
    """Raises Unready with every verb that would be refused, hours from now too."""
    denied = [
        f"{verb} {resource} {f'in {where}' if where else 'in all namespaces'}"
        for wanted, where in ((asked, namespace), (ASKED_EVERYWHERE, ""))
        for (group, resource), verbs in wanted.items()
        for verb in verbs
        if not kube.may(verb, group, resource, where)
    ]
    if denied:
        raise Unready(f"it may not {', '.join(denied)}")
    return f"{sum(map(len, [*asked.values(), *ASKED_EVERYWHERE.values()]))} verbs"


def cluster_check(settings: RayOnKubernetes, kube: KubeRay) -> ToCheck:
    return ToCheck(
        "the RayCluster is ready", lambda: ready_cluster(settings, kube), "run cluster-up, and read what its pods say"
    )


def images_check(settings: RayOnKubernetes) -> ToCheck:
    return ToCheck(
        "images that are pinned are pinned to something",
        lambda: real_images(settings),
        "build and push them, and put in what `docker buildx imagetools inspect` says",
    )


def real_images(settings: RayOnKubernetes) -> str:
    """Raises Unready with the images whose digest nobody has looked up yet: it is written as zeros."""
    images = {"hosting.train_image": settings.train_image, "hosting.serve_image": settings.serve_image}
    if zeros := [name for name, image in images.items() if image.endswith("0" * 64)]:
        raise Unready(f"{' and '.join(zeros)} still {'has' if len(zeros) == 1 else 'have'} zeros for a digest")
    return ", ".join(filter(None, images.values())) or "none: the run builds them"


def training_place_check(settings: RayOnKubernetes, kube: KubeRay, queued: bool = False) -> ToCheck:
    """Before a RayCluster is made: it would wait for an hour."""
    return ToCheck(
        "every pod that trains has a place",
        lambda: require_places(
            {"training": training_pods(settings)}, free_rooms(kube, [_training(settings)], are_empty=queued)
        ),
        PLACE_REMEDY,
    )


def places_check(settings: RayOnKubernetes, kube: KubeRay, queued: bool = False) -> ToCheck:
    """Training and serving, side by side or one after the other, as the settings have it."""
    leaves = [_training(settings), _serving(settings)]
    return ToCheck(
        "every pod has a place, in training and in serving",
        lambda: require_places(windows_of(settings), free_rooms(kube, leaves, are_empty=queued)),
        PLACE_REMEDY,
    )


def windows_of(settings: RayOnKubernetes) -> dict[str, list[PodAsk]]:
    """Which pods must have a place at the same time."""
    training, serving = training_pods(settings), serving_pods(settings)
    if isinstance(settings.serving, OwnMachines):
        return {"training beside serving": [*serving, *training]}
    return {"training, with serving suspended": training, "serving": serving}


def free_rooms(kube: KubeRay, leave: Sequence[re.Pattern[str]], are_empty: bool = False) -> list[Room]:
    """All machines as they will be once these RayClusters are gone: what is to be placed is not in its own way.

    Where a queue decides when there is room, machines are looked at as if they were empty.
    """
    if are_empty:
        return [replace(room, held=()) for room in kube.rooms()]
    return [room.without(lambda name: any(one.fullmatch(name) for one in leave)) for room in kube.rooms()]


def require_places(windows: Mapping[str, Sequence[PodAsk]], rooms: Sequence[Room]) -> str:
    """Raises Unready with the pods that have no place, and who holds what is not free."""
    placed = {title: place(pods, rooms) for title, pods in windows.items()}
    if lacking := [f"{title}: {why}" for title, found in placed.items() if (why := homeless(found))]:
        raise Unready("; ".join(lacking))
    return "; ".join(f"{one.pod.name} on {one.machine}" for found in placed.values() for one in found)


def _training(settings: RayOnKubernetes) -> re.Pattern[str]:
    return re.compile(re.escape(f"{settings.namespace}/{settings.train_cluster}"))


def _serving(settings: RayOnKubernetes) -> re.Pattern[str]:
    """A RayService's clusters (KubeRay, GenerateRayClusterName: its name and five characters)."""
    return re.compile(re.escape(f"{settings.namespace}/{settings.serve_name}-") + "[a-z0-9]{5}")


def ready_cluster(settings: RayOnKubernetes, kube: KubeRay) -> str:
    """Raises Unready with what the RayCluster lacks."""
    cluster = kube.look("RayCluster", settings.namespace, settings.train_cluster)
    lacks = cluster_shortfall(cluster, settings.workers.count) if cluster else "it does not exist"
    if lacks:
        raise Unready(lacks)
    return f"{settings.workers.count} workers"
