"""Which machine each pod would get, and which pod gets none: the scheduler's rules, as far as a run's pods need them.

Pods are placed one after another, each on the machine with most left (kube-scheduler, NodeResourcesFit with
LeastAllocated, its default). Node selectors, taints, cordons, CPUs, memory and GPUs count; affinities do not. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kubernetes.utils.quantity import parse_quantity

GIB = 2**30


@dataclass(frozen=True)
class Amount:
    """What a pod asks for or a machine has."""

    cpus: float = 0.0
    memory_gib: float = 0.0
    gpus: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.cpus + other.cpus, self.memory_gib + other.memory_gib, self.gpus + other.gpus)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.cpus - other.cpus, self.memory_gib - other.memory_gib, self.gpus - other.gpus)

    def lacks(self, wanted: Amount) -> list[str]:
        """What of ``wanted`` is not here. CPUs are compared in whole thousandths, as the scheduler counts them."""
        pairs = {"CPUs": (self.cpus, wanted.cpus), "GPUs": (self.gpus, wanted.gpus)}
        found = [
            f"{max(has, 0):g} of {asks:g} {name} free"
            for name, (has, asks) in pairs.items()
            if _millis(has) < _millis(asks)
        ]
        if self.memory_gib < wanted.memory_gib:
            found.append(f"{max(self.memory_gib, 0):.0f} of {wanted.memory_gib:.0f} GiB free")
        return found

    def __str__(self) -> str:
        gpus = f", {self.gpus:g} GPUs" if self.gpus else ""
        return f"{self.cpus:g} CPUs, {self.memory_gib:.0f} GiB{gpus}"


@dataclass(frozen=True)
class PodAsk:
    """A pod that is to be placed."""

    name: str
    asks: Amount
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Held:
    """What a pod holds of a machine."""

    pod: str
    cluster: str
    """Namespace and name of the RayCluster that it belongs to; empty for every other pod."""
    amount: Amount


@dataclass(frozen=True)
class Room:
    """A machine: what it offers, and who holds it."""

    machine: str
    labels: Mapping[str, str]
    offers: Amount
    held: tuple[Held, ...] = ()
    taints: tuple[Mapping[str, Any], ...] = ()
    unusable: str = ""
    """Why no pod is put there at all; empty where they are."""

    @property
    def free(self) -> Amount:
        left = self.offers
        for held in self.held:
            left -= held.amount
        return left

    def without(self, leaves: Callable[[str], bool]) -> Room:
        """The same once the RayClusters are gone of which ``leaves`` says so."""
        return replace(self, held=tuple(held for held in self.held if not (held.cluster and leaves(held.cluster))))

    def refuses(self, pod: PodAsk) -> str:
        """Why this pod is not put here; empty where it is."""
        if self.unusable:
            return self.unusable
        for taint in self.taints:
            if taint.get("effect") != "PreferNoSchedule" and not any(_tolerates(t, taint) for t in pod.tolerations):
                return f"taint {taint['key']}"
        if lacks := self.free.lacks(pod.asks):
            large = sorted(self.held, key=lambda held: (held.amount.gpus, held.amount.cpus), reverse=True)[:2]
            holders = ", ".join(f"{held.pod} holds {held.amount}" for held in large)
            return f"{', '.join(lacks)}{f' ({holders})' if holders else ' (the machine is too small)'}"
        return ""


@dataclass(frozen=True)
class Placed:
    """Where a pod would be, or why nowhere."""

    pod: PodAsk
    machine: str
    """Empty where there is no place."""
    why: str = ""


def place(pods: Sequence[PodAsk], rooms: Sequence[Room]) -> tuple[Placed, ...]:
    """Every pod with its machine, or with what is in its way on each machine that its selector names."""
    left, found = list(rooms), list[Placed]()
    for pod in pods:
        matching = [room for room in left if pod.selector.items() <= room.labels.items()]
        fitting = [room for room in matching if not room.refuses(pod)]
        if not fitting:
            found.append(Placed(pod, "", _no_place(pod, matching)))
            continue
        best = max(fitting, key=lambda room: _share_left(room, pod))
        left[left.index(best)] = replace(best, held=(*best.held, Held(pod.name, "", pod.asks)))
        found.append(Placed(pod, best.machine))
    return tuple(found)


def homeless(placed: Sequence[Placed]) -> str:
    """The pods that have no place, each with why; empty when all have one."""
    return "; ".join(
        f"pod {one.pod.name} ({one.pod.asks}) has no place: {one.why}" for one in placed if not one.machine
    )


def asks_of(prefix: str, cluster_spec: Mapping[str, Any]) -> list[PodAsk]:
    """The pods of a RayCluster's spec, the head first: so KubeRay makes them."""
    pods = [_ask(f"{prefix}-head", cluster_spec["headGroupSpec"]["template"])]
    for group in cluster_spec.get("workerGroupSpecs", []):
        numbers = range(1, group["replicas"] + 1)
        pods += [_ask(f"{prefix}-{group['groupName']}-{number}", group["template"]) for number in numbers]
    return pods


def requests_of(spec: Mapping[str, Any]) -> Amount:
    """What the scheduler counts for a pod (KEP-753: init containers run before, sidecars beside)."""
    total, first = Amount(), Amount()
    for container in spec.get("containers") or []:
        total += _amount(container)
    for container in spec.get("initContainers") or []:
        asked = _amount(container)
        if container.get("restartPolicy") == "Always":
            total += asked
        else:
            first = Amount(*(max(pair) for pair in zip(_parts(first), _parts(asked), strict=True)))
    most = Amount(*(max(pair) for pair in zip(_parts(total), _parts(first), strict=True)))
    return most + amount_of(spec.get("overhead") or {})


def amount_of(quantities: Mapping[str, Any]) -> Amount:
    """Kubernetes' words for amounts."""

    def number(key: str) -> float:
        return float(parse_quantity(quantities.get(key) or 0))

    return Amount(number("cpu"), number("memory") / GIB, number("nvidia.com/gpu"))


def _amount(container: Mapping[str, Any]) -> Amount:
    resources = container.get("resources") or {}
    # Without a request the limit is the request (Kubernetes, "Resource Management for Pods and Containers").
    return amount_of({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _millis(amount: float) -> int:
    return round(amount * 1000)


def _parts(amount: Amount) -> tuple[float, float, float]:
    return amount.cpus, amount.memory_gib, amount.gpus


def _ask(name: str, template: Mapping[str, Any]) -> PodAsk:
    spec = template["spec"]
    return PodAsk(name, requests_of(spec), spec.get("nodeSelector") or {}, tuple(spec.get("tolerations") or ()))


def _share_left(room: Room, pod: PodAsk) -> float:
    left, offers = room.free - pod.asks, room.offers
    pairs = [(left.cpus, offers.cpus), (left.memory_gib, offers.memory_gib)]
    return sum(rest / whole for rest, whole in pairs if whole)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and (toleration.get("value") or "") == (taint.get("value") or "")


def _no_place(pod: PodAsk, matching: Sequence[Room]) -> str:
    if not matching:
        wanted = ", ".join(f"{key.rpartition('/')[2]}={value}" for key, value in pod.selector.items())
        return f"no machine has {wanted}"
    return "; ".join(f"{room.machine}: {room.refuses(pod)}" for room in matching)
