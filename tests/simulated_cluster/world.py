"""A Kubernetes cluster with capacity, in a time of its own: machines, what stands on them, and what breaks.

Nothing sleeps: whoever waits moves the clock (``Clock.sleep``), and every move lets scheduler, kubelets and KubeRay do
what is due. ``World.timeline`` says who held which machine when.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import RLock
from typing import Any

START = datetime(2026, 11, 30, 2, 0, tzinfo=UTC)
"""A Monday, 02:00 UTC."""
STEP_S = 30.0


class Refused(Exception):
    """An answer that is no success, as the API server words it (apimachinery, pkg/api/errors)."""

    def __init__(self, code: int, reason: str, message: str, name: str = "") -> None:
        super().__init__(message)
        details = {"details": {"name": name}} if name else {}
        self.code, self.body = code, {"kind": "Status", "reason": reason, "message": message, "code": code, **details}


class Clock:
    """Time as an argument."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.moved: list[Callable[[], None]] = []

    def sleep(self, seconds: float) -> None:
        """Move on, at least a little, in steps small enough for everybody to notice."""
        end = self.passed_s + max(seconds, 1.0)
        step_s = max(STEP_S, seconds / 100)
        while self.passed_s < end:
            self.passed_s = min(self.passed_s + step_s, end)
            for act in self.moved:
                act()

    def monotonic(self) -> float:
        return self.passed_s

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed_s)

    def text(self) -> str:
        return self.now().strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Machine:
    """A node, with what it can give to pods: allocatable less what daemonsets take (``daemons``)."""

    name: str
    group: str
    instance_type: str
    cpus: float
    memory_gib: float
    gpus: int = 0
    daemons: tuple[float, float] = (0.5, 2.0)
    """CPUs and GiB that the daemonsets' pods ask for."""
    is_ready: bool = True
    taints: list[dict[str, str]] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    """Besides HyperPod's."""

    def document(self) -> dict[str, Any]:
        amounts = {"cpu": str(self.cpus), "memory": f"{self.memory_gib:g}Gi", "pods": "110"}
        amounts |= {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        labels = {
            "node.kubernetes.io/instance-type": self.instance_type,
            "sagemaker.amazonaws.com/instance-group-name": self.group,
            "sagemaker.amazonaws.com/node-health-status": "Schedulable" if self.is_ready else "Unschedulable",
            **self.labels,
        }
        ready = {"type": "Ready", "status": "True" if self.is_ready else "Unknown"}
        lost = [] if self.is_ready else [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"taints": [*self.taints, *lost]},
            "status": {"conditions": [ready], "allocatable": amounts, "capacity": amounts},
        }


@dataclass
class Faults:
    """What goes wrong from now on."""

    lost_images: set[str] = field(default_factory=set)
    """Images that no registry has."""
    webhook: str = ""
    """Admission refuses every RayCluster and RayService with these words."""
    conflicts: int = 0
    """So many next updates find the resource changed."""
    forbidden: bool = False
    """The identity is another one since its credentials were renewed."""
    watches_end: bool = False
    """A watch ends as soon as it begins (the API server does that at any time)."""
    no_operator: bool = False
    """KubeRay's operator is down."""


class World:
    """Every object of the cluster, and its parts that act on them."""

    def __init__(self, clock: Clock, operator: str = "1.7") -> None:
        self.clock, self.operator, self.faults, self.lock = clock, operator, Faults(), RLock()
        self.machines: dict[str, Machine] = {}
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.changes: list[str] = []
        """What clients asked for."""
        self.history: list[tuple[int, str, tuple[str, str, str], dict[str, Any]]] = []
        self.timeline: list[tuple[str, str, str, str]] = []
        """When, machine, pod, ``takes`` or ``leaves``."""
        self.denied: set[str] = set()
        self.identity_of: Callable[[str, str], bool] = lambda namespace, account: True
        """Whether a service account is associated with a role when its pod is admitted."""
        self.parts: list[Callable[[World], None]] = []
        self._version, self._numbers = 0, 0
        clock.moved.append(self.tick)

    def add(self, machine: Machine) -> None:
        """A machine joins, with its daemonsets' pod."""
        self.machines[machine.name] = machine
        cpus, memory_gib = machine.daemons
        asks = {"cpu": str(cpus), "memory": f"{memory_gib:g}Gi"}
        container = {"name": "agent", "image": "eks/agent", "resources": {"requests": asks}}
        pod = {"metadata": {"name": f"agents-{machine.name}", "labels": {}}, "spec": {"containers": [container]}}
        self.put("pods", "kube-system", pod)
        pod["spec"]["nodeName"] = machine.name
        pod["status"] = {"phase": "Running"}

    def lose(self, name: str) -> None:
        """A node's kubelet goes silent; its pods are evicted (node.kubernetes.io/unreachable, NoExecute)."""
        with self.lock:
            self.machines[name].is_ready = False
            for pod in self.pods_on(name):
                self.drop("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])

    def reclaim(self, name: str) -> None:
        """A spot machine is taken away: the node is no more."""
        with self.lock:
            self.lose(name)
            del self.machines[name]

    def restore(self, name: str) -> None:
        self.machines[name].is_ready = True

    def tick(self) -> None:
        with self.lock:
            for part in self.parts:
                part(self)

    # Objects

    def every(self, plural: str, namespace: str = "") -> list[dict[str, Any]]:
        return [each for key, each in self.objects.items() if key[0] == plural and namespace in ("", key[1])]

    def get(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((plural, namespace, name))

    def put(self, plural: str, namespace: str, document: dict[str, Any]) -> dict[str, Any]:
        """A new object."""
        metadata = document["metadata"]
        key = (plural, namespace, metadata["name"])
        if key in self.objects:
            raise Refused(409, "AlreadyExists", f'{plural} "{key[2]}" already exists', key[2])
        self._version += 1
        metadata |= {"namespace": namespace, "uid": f"u-{self._version}", "generation": 1}
        metadata["creationTimestamp"] = self.clock.text()
        self.objects[key] = document
        self.touch(key, "ADDED")
        return document

    def touch(self, key: tuple[str, str, str], kind: str = "MODIFIED") -> None:
        self._version += 1
        self.objects[key]["metadata"]["resourceVersion"] = str(self._version)
        self.history.append((self._version, kind, key, copy.deepcopy(self.objects[key])))

    def drop(self, plural: str, namespace: str, name: str) -> None:
        key = (plural, namespace, name)
        gone = self.objects.pop(key)
        self._version += 1
        self.history.append((self._version, "DELETED", key, copy.deepcopy(gone)))
        if plural == "pods" and (machine := gone["spec"].get("nodeName")):
            self.timeline.append((self.clock.text(), machine, name, "leaves"))

    def pods_on(self, machine: str) -> list[dict[str, Any]]:
        return [pod for pod in self.every("pods") if pod["spec"].get("nodeName") == machine]

    def bind(self, pod: dict[str, Any], machine: str) -> None:
        pod["spec"]["nodeName"] = machine
        pod["status"]["since_s"] = self.clock.passed_s
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        self.timeline.append((self.clock.text(), machine, pod["metadata"]["name"], "takes"))

    def tell(self, about: dict[str, Any], reason: str, message: str, kind: str = "Warning") -> None:
        """An event (core/v1), once."""
        metadata = about["metadata"]
        where = {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
        told = {"type": kind, "reason": reason, "message": message, "involvedObject": where}
        if any(told.items() <= event.items() for event in self.events):
            return
        name = f"e-{len(self.events)}"
        self.events.append({"metadata": {"name": name}, **told, "lastTimestamp": self.clock.text()})

    def number(self) -> int:
        """The next one, for names."""
        self._numbers += 1
        return self._numbers

    def holders(self) -> dict[str, list[str]]:
        """Machine -> the Ray pods on it now."""
        ray = [pod for pod in self.every("pods") if pod["metadata"]["namespace"] != "kube-system"]
        on = {(pod["metadata"]["name"], pod["spec"].get("nodeName")) for pod in ray}
        return {machine: sorted(pod for pod, where in on if where == machine) for machine in self.machines}

    def told(self) -> str:
        """The timeline, one line a change."""
        return "\n".join(f"{when}  {machine:12} {pod:34} {verb}" for when, machine, pod, verb in self.timeline)
