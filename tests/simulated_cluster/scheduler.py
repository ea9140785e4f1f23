"""kube-scheduler and the kubelets, as far as Ray's pods meet them. Written apart from the pipeline's own reckoning."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from tests.simulated_cluster.world import Machine, World

START_S = 90.0
"""From its machine to ready: the image is pulled, Ray starts."""
KINDS = ("cpu", "memory", "nvidia.com/gpu")


def schedule(world: World) -> None:
    """Bind what fits, the oldest first; the others say why not, in its words (framework/types.go, FitError)."""
    for pod in world.every("pods"):
        if pod["spec"].get("nodeName"):
            continue
        reasons = {name: _refusal(world, machine, pod) for name, machine in world.machines.items()}
        fitting = [world.machines[name] for name, why in reasons.items() if not why]
        if fitting:
            world.bind(pod, max(fitting, key=lambda machine: _left(world, machine)).name)
            continue
        counts = Counter(reasons.values())
        words = ", ".join(f"{number} {why}" for why, number in sorted(counts.items()))
        message = f"0/{len(reasons)} nodes are available: {words}."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        pod["status"]["conditions"] = [condition]
        world.tell(pod, "FailedScheduling", message)


def run_pods(world: World) -> None:
    """What is bound starts, unless its image cannot be had (kubelet, ErrImagePull and ImagePullBackOff)."""
    for pod in world.every("pods"):
        status = pod["status"]
        if not pod["spec"].get("nodeName") or status.get("phase") != "Pending":
            continue
        (container,) = pod["spec"]["containers"]
        if container["image"] in world.faults.lost_images:
            waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{container["image"]}"'}
            state = {"name": container["name"], "state": {"waiting": waiting}}
            status["containerStatuses"] = [{**state, "image": "", "imageID": "", "ready": False, "restartCount": 0}]
        elif world.clock.passed_s - status["since_s"] >= START_S:
            status |= {"phase": "Running", "containerStatuses": None}


def _refusal(world: World, machine: Machine, pod: dict[str, Any]) -> str:
    node, spec = machine.document(), pod["spec"]
    tolerated = {each.get("key") for each in spec.get("tolerations") or []}
    for taint in node["spec"]["taints"]:
        if taint["key"] not in tolerated:
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    if not (spec.get("nodeSelector") or {}).items() <= node["metadata"]["labels"].items():
        return "node(s) didn't match Pod's node affinity/selector"
    free, asked = _free(world, machine), _asked(pod)
    lacking = [kind for kind in KINDS if asked[kind] > free[kind]]
    return f"Insufficient {lacking[0]}" if lacking else ""


def _asked(pod: dict[str, Any]) -> dict[str, Decimal]:
    requests = [container.get("resources", {}).get("requests", {}) for container in pod["spec"]["containers"]]
    return {kind: sum((parse_quantity(asked.get(kind, 0)) for asked in requests), Decimal(0)) for kind in KINDS}


def _free(world: World, machine: Machine) -> dict[str, Decimal]:
    offers = machine.document()["status"]["allocatable"]
    taken = [_asked(pod) for pod in world.pods_on(machine.name)]
    return {kind: parse_quantity(offers.get(kind, 0)) - sum(asked[kind] for asked in taken) for kind in KINDS}


def _left(world: World, machine: Machine) -> Decimal:
    return _free(world, machine)["cpu"] / Decimal(str(machine.cpus))
