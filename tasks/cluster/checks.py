"""Checks of the AWS side: the HyperPod cluster and its machines, Kubernetes' view of them, the RayCluster, its pods."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tasks.checks import ToCheck, Unready
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.kube_waits import cluster_shortfall
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.manifests import serving_pods, training_pods
from tasks.cluster.placement import PodAsk, Room, homeless, place
from tasks.cluster.settings import HyperPodSettings, NodeGroup, OwnMachines

PLACE_REMEDY = (
    "free the machine from what holds it, take more or larger machines (hosting's groups), or let pods ask for less "
    "(num_cpus, memory_gib)"
)

ASKED = {
    ("ray.io", "rayclusters"): ("get", "create", "patch", "delete"),
    ("ray.io", "rayservices"): ("get", "create", "patch", "delete"),
    ("", "serviceaccounts"): ("get", "create", "patch"),
    ("", "pods"): ("list", "delete"),
    ("", "events"): ("list",),
}
"""What a run asks of Kubernetes in its namespace, from first stage to clean-up: API group and resource -> verbs."""
ASKED_EVERYWHERE = {("", "nodes"): ("list",), ("", "pods"): ("list",)}
"""The same for all namespaces: what is free of a machine is only known with everybody's pods."""


def machine_checks(settings: HyperPodSettings, kube: KubeRay, machines: HyperPodMachines) -> list[ToCheck]:
    """What must hold before a RayCluster is made."""
    return [
        access_check(settings, kube),
        ToCheck(
            "the HyperPod cluster is in service",
            lambda: in_service(machines.status()),
            "wait for its update or recovery; `aws sagemaker list-cluster-events` says what goes on",
        ),
        ToCheck(
            "its instance groups have their machines, and they run",
            lambda: enough_machines([settings.head, settings.workers], machines),
            "raise the groups' instance counts, or wait: HyperPod replaces machines that fail",
        ),
        ToCheck(
            "Kubernetes can use these machines, GPUs and all",
            lambda: usable_nodes([settings.head, settings.workers], kube),
            "look at the node's labels and events; `aws sagemaker batch-replace-cluster-nodes` replaces a sick one",
        ),
        ToCheck(
            "every pod that trains has a place",
            lambda: require_places({"training": training_pods(settings)}, free_rooms(kube, [_training(settings)])),
            PLACE_REMEDY,
        ),
    ]


def room_checks(settings: HyperPodSettings, kube: KubeRay, machines: HyperPodMachines) -> list[ToCheck]:
    """What serving needs of machines while and after a run trains, looked at before it does."""
    groups = list(settings.serving_groups)
    return [
        access_check(settings, kube),
        ToCheck(
            "the machines that serve are there, and they run",
            lambda: enough_machines(groups, machines),
            "raise the groups' instance counts, or let serving stand on the machines that train "
            "(hosting.serving.kind: suspended)",
        ),
        places_check(settings, kube),
    ]


def places_check(settings: HyperPodSettings, kube: KubeRay) -> ToCheck:
    """Training and serving, side by side or one after the other, as the settings have it."""
    leaves = [_training(settings), _serving(settings)]
    return ToCheck(
        "every pod has a place, in training and in serving",
        lambda: require_places(windows_of(settings), free_rooms(kube, leaves)),
        PLACE_REMEDY,
    )


def windows_of(settings: HyperPodSettings) -> dict[str, list[PodAsk]]:
    """Which pods must have a place at the same time."""
    training, serving = training_pods(settings), serving_pods(settings)
    if isinstance(settings.serving, OwnMachines):
        return {"training beside serving": [*serving, *training]}
    return {"training, with serving suspended": training, "serving": serving}


def free_rooms(kube: KubeRay, leave: Sequence[re.Pattern[str]]) -> list[Room]:
    """All machines as they will be once these RayClusters are gone: what is to be placed is not in its own way."""
    return [room.without(lambda name: any(one.fullmatch(name) for one in leave)) for room in kube.rooms()]


def require_places(windows: Mapping[str, Sequence[PodAsk]], rooms: Sequence[Room]) -> str:
    """Raises Unready with the pods that have no place, and who holds what is not free."""
    placed = {title: place(pods, rooms) for title, pods in windows.items()}
    if lacking := [f"{title}: {why}" for title, found in placed.items() if (why := homeless(found))]:
        raise Unready("; ".join(lacking))
    return "; ".join(f"{one.pod.name} on {one.machine}" for found in placed.values() for one in found)


def _training(settings: HyperPodSettings) -> re.Pattern[str]:
    return re.compile(re.escape(f"{settings.namespace}/{settings.train_cluster}"))


def _serving(settings: HyperPodSettings) -> re.Pattern[str]:
    """A RayService's clusters (KubeRay, GenerateRayClusterName: its name and five characters)."""
    return re.compile(re.escape(f"{settings.namespace}/{settings.serve_name}-") + "[a-z0-9]{5}")


def cluster_checks(settings: HyperPodSettings, kube: KubeRay, identity: PodIdentity) -> list[ToCheck]:
    """What must hold before a job is submitted to the RayCluster."""
    return [
        access_check(settings, kube),
        ToCheck(
            "the RayCluster is ready",
            lambda: ready_cluster(settings, kube),
            "run cluster-up, and read what its pods say",
        ),
        ToCheck(
            "its pods have their AWS identity",
            lambda: identified(settings, kube, identity),
            "is the add-on eks-pod-identity-agent active? Delete the pods that were made before the association",
        ),
        places_check(settings, kube),
    ]


def access_check(settings: HyperPodSettings, kube: KubeRay) -> ToCheck:
    return ToCheck(
        "Kubernetes lets this identity do what the run will ask",
        lambda: allowed(settings, kube),
        "`kubectl apply -f docker/role.yaml`, and give its EKS access entry the group maze-worker (docs/aws.md)",
    )


def allowed(settings: HyperPodSettings, kube: KubeRay) -> str:
    """Raises Unready with every verb that would be refused, hours from now too."""
    denied = [
        f"{verb} {resource} {f'in {namespace}' if namespace else 'in all namespaces'}"
        for asked, namespace in ((ASKED, settings.namespace), (ASKED_EVERYWHERE, ""))
        for (group, resource), verbs in asked.items()
        for verb in verbs
        if not kube.may(verb, group, resource, namespace)
    ]
    if denied:
        raise Unready(f"it may not {', '.join(denied)}")
    return f"{sum(map(len, [*ASKED.values(), *ASKED_EVERYWHERE.values()]))} verbs"


def in_service(status: str) -> str:
    """Raises Unready for every state but InService."""
    if not status.startswith("InService"):
        raise Unready(f"it is {status}")
    return status


def enough_machines(groups: list[NodeGroup], machines: HyperPodMachines) -> str:
    """Raises Unready with the groups that have too few running machines, and what the others say."""
    found = machines.machines()
    lacks: list[str] = []
    for group in groups:
        ours = [machine for machine in found if machine.instance_group == group.instance_group]
        running = [machine for machine in ours if machine.status == "Running"]
        others = [f"{machine.instance_id} {machine.status} {machine.message}".strip() for machine in ours]
        wrong = {machine.instance_type for machine in ours} - {group.instance_type}
        if wrong:
            lacks.append(f"{group.instance_group} has {', '.join(sorted(wrong))}, wanted {group.instance_type}")
        if len(running) < group.count:
            seen = "; ".join(others) or "it has none"
            lacks.append(f"{group.instance_group}: {len(running)} of {group.count} machines run ({seen})")
    if lacks:
        raise Unready("; ".join(lacks))
    return ", ".join(f"{group.instance_group}: {group.count} x {group.instance_type}" for group in groups)


def usable_nodes(groups: list[NodeGroup], kube: KubeRay) -> str:
    """Raises Unready with the nodes that are not ready, not schedulable or short of GPUs."""
    lacks: list[str] = []
    for group in groups:
        nodes = kube.nodes(group.instance_type)
        usable = [node for node in nodes if node.is_ready and node.health == "Schedulable"]
        whole = [node for node in usable if node.num_gpus >= group.num_gpus]
        if len(whole) < group.count:
            seen = [
                f"{node.name}: {'ready' if node.is_ready else 'not ready'}, {node.health}, {node.num_gpus} GPUs"
                for node in nodes
            ]
            states = "; ".join(seen) or "none is there"
            lacks.append(f"{len(whole)} of {group.count} {group.instance_type} can be used ({states})")
    if lacks:
        raise Unready("; ".join(lacks))
    return "all ready, Schedulable, with their GPUs"


def ready_cluster(settings: HyperPodSettings, kube: KubeRay) -> str:
    """Raises Unready with what the RayCluster lacks."""
    cluster = kube.look("RayCluster", settings.namespace, settings.train_cluster)
    lacks = cluster_shortfall(cluster, settings.workers.count) if cluster else "it does not exist"
    if lacks:
        raise Unready(lacks)
    return f"{settings.workers.count} workers"


def identified(settings: HyperPodSettings, kube: KubeRay, identity: PodIdentity) -> str:
    """Raises Unready when the association or a pod's share in it is missing."""
    role = identity.role(settings.namespace, settings.service_account)
    if role is None or role != settings.role_arn:
        raise Unready(f"{settings.namespace}/{settings.service_account} is associated with {role or 'no role'}")
    without = kube.pods_without_identity(settings.namespace, settings.train_cluster)
    if without:
        raise Unready(f"made before the association: {', '.join(without)}")
    return role
