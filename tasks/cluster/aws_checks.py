"""Checks of the AWS side: the HyperPod cluster and its machines, Kubernetes' view of them, the pods' identity."""

from __future__ import annotations

from tasks.checks import ToCheck, Unready
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.checks import ASKED, Verbs
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.settings import HyperPodSettings, NodeGroup

ASKED_ON_AWS: Verbs = {
    **ASKED,
    ("", "serviceaccounts"): ("get", "create", "patch"),
    # Deleted: those that were made before their identity.
    ("", "pods"): ("list", "delete"),
}
"""What a run on HyperPod asks of Kubernetes in its namespace."""
ACCESS_REMEDY = "`kubectl apply -f docker/role.yaml`, and give its EKS access entry the group maze-worker (docs/aws.md)"


def machine_checks(settings: HyperPodSettings, kube: KubeRay, machines: HyperPodMachines) -> list[ToCheck]:
    """What must hold of the machines that train before a RayCluster is made."""
    return [
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
    ]


def serving_machines_check(settings: HyperPodSettings, machines: HyperPodMachines) -> ToCheck:
    """What serving needs of machines while and after a run trains, looked at before it does."""
    return ToCheck(
        "the machines that serve are there, and they run",
        lambda: enough_machines(list(settings.serving_groups), machines),
        "raise the groups' instance counts, or let serving stand on the machines that train "
        "(hosting.serving.kind: suspended)",
    )


def identity_check(settings: HyperPodSettings, kube: KubeRay, identity: PodIdentity) -> ToCheck:
    return ToCheck(
        "its pods have their AWS identity",
        lambda: identified(settings, kube, identity),
        "is the add-on eks-pod-identity-agent active? Delete the pods that were made before the association",
    )


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


def identified(settings: HyperPodSettings, kube: KubeRay, identity: PodIdentity) -> str:
    """Raises Unready when the association or a pod's share in it is missing."""
    role = identity.role(settings.namespace, settings.service_account)
    if role is None or role != settings.role_arn:
        raise Unready(f"{settings.namespace}/{settings.service_account} is associated with {role or 'no role'}")
    without = kube.pods_without_identity(settings.namespace, settings.train_cluster)
    if without:
        raise Unready(f"made before the association: {', '.join(without)}")
    return role
