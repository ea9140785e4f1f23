"""What the looks of all places mean together. Pure: each says what was found, or raises Unready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl.readiness.node import Seen

Reports = Mapping[str, Mapping[str, Seen]]
"""Place (``driver``, or a node's label) -> look -> what it found."""


class Unready(RuntimeError):
    """What was found is not what the run needs."""


@dataclass(frozen=True)
class GpuNode:
    """A node with GPUs, as Ray sees it."""

    node_id: str
    label: str
    num_gpus: float
    num_free: float


def enough_gpus(
    nodes: Sequence[GpuNode], num_gpus: int, num_policy_nodes: int, num_gpus_per_node: int, is_real: bool, device: str
) -> str:
    """GPUs in total and free, on enough nodes, and of the kind that the settings name."""
    total, free = sum(node.num_gpus for node in nodes), sum(node.num_free for node in nodes)
    wide = [node for node in nodes if node.num_free >= num_gpus_per_node]
    each = ", ".join(f"{node.label}: {node.num_free:g} of {node.num_gpus:g}" for node in nodes)
    text = f"{free:g} of {total:g} GPUs are free on {len(nodes)} nodes" + (f" ({each})" if each else "")
    if free < num_gpus or len(wide) < num_policy_nodes:
        raise Unready(f"{text}; wanted {num_gpus}, with {num_gpus_per_node} on each of {num_policy_nodes} nodes")
    if is_real != (device == "cuda"):
        kind = "real" if is_real else "logical"
        raise Unready(f"{text}; they are {kind} ones, and engine.device is {device}")
    return text


def same_versions(reports: Reports) -> str:
    """One version of each package, and none missing."""
    found = _values(reports, "versions")
    names = next(iter(found.values()))
    lacks = []
    for name in names:
        by_place = {place: versions[name] or "not installed" for place, versions in found.items()}
        if len(set(by_place.values())) > 1 or "not installed" in by_place.values():
            lacks.append(f"{name} is {grouped(by_place)}")
    if lacks:
        raise Unready("; ".join(lacks))
    return ", ".join(f"{name} {version}" for name, version in names.items()) + f" in {len(found)} places"


def alike_gpus(reports: Reports, min_gpu_memory_gb: float) -> str:
    """One model with one size of memory, and that is enough."""
    found = _values(reports, "gpus")
    kinds = {(name, mib) for gpus in found.values() for name, mib in gpus}
    by_place = {place: _describe(gpus) for place, gpus in found.items()}
    if len(kinds) != 1 or not all(found.values()):
        raise Unready(grouped(by_place) or "no node was asked")
    ((_, mib),) = kinds
    gb = mib * 2**20 / 1e9
    if gb < min_gpu_memory_gb:
        raise Unready(f"{grouped(by_place)}: {gb:.1f} GB each, wanted {min_gpu_memory_gb:g}")
    return grouped(by_place)


def _describe(gpus: Sequence[tuple[str, int]]) -> str:
    counts = {gpu: list(gpus).count(gpu) for gpu in gpus}
    return " and ".join(f"{count} x {name} ({mib} MiB)" for (name, mib), count in counts.items()) or "no GPU"


def one_file_system(reports: Reports, unseen: Seen) -> str:
    """Every place read what the driver wrote, and the driver read what every node wrote.

    ``unseen`` holds the labels of nodes whose file the driver did not find.
    """
    try:
        found = _values(reports, "shared")
    except Unready as error:
        raise Unready(f"{error}{_not_seen(unseen)}") from error
    if unseen.error or unseen.value:
        raise Unready(_not_seen(unseen).removeprefix("; "))
    return f"written and read in {len(found)} places"


def _not_seen(unseen: Seen) -> str:
    if unseen.error:
        return f"; {unseen.error} (driver)"
    return f"; the driver does not see what {', '.join(unseen.value)} wrote" if unseen.value else ""


def enough_space(free_gb: Seen, shared_dir: str, min_free_disk_gb: float) -> str:
    """As much as training asks for when it starts."""
    if free_gb.error:
        raise Unready(free_gb.error)
    text = f"{shared_dir} has {free_gb.value:.1f} GB free"
    if free_gb.value < min_free_disk_gb:
        raise Unready(f"{text}, wanted {min_free_disk_gb:g}")
    return text


def same_model(reports: Reports) -> str:
    """The same configuration everywhere."""
    found = _values(reports, "model")
    if len(set(found.values())) > 1:
        raise Unready(f"config.json differs: SHA-256 {grouped({place: value[:12] for place, value in found.items()})}")
    return f"the same config.json in {len(found)} places"


def answers_everywhere(reports: Reports) -> str:
    """MLflow answered in every place."""
    return grouped(_values(reports, "mlflow"))


def grouped(by_place: Mapping[str, str]) -> str:
    """``x (a, b); y (c)``: what was found, and where."""
    places: dict[str, list[str]] = {}
    for place, text in by_place.items():
        places.setdefault(text, []).append(place)
    return "; ".join(f"{text} ({', '.join(where)})" for text, where in places.items())


def _values(reports: Reports, key: str) -> dict[str, Any]:
    """What each place found that was asked; raises Unready with those that found nothing."""
    asked = {place: report[key] for place, report in reports.items() if key in report}
    errors = {place: seen.error for place, seen in asked.items() if seen.error}
    if errors:
        raise Unready(grouped(errors))
    return {place: seen.value for place, seen in asked.items()}
