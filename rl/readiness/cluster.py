"""Ray's side of the readiness checks: which nodes have GPUs, what is free, one task on each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import ray
from ray._private.state import available_resources_per_node
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rl.readiness import node
from rl.readiness.checks import GpuNode
from rl.readiness.node import Seen
from rl.readiness.settings import START_S, NodeWants

SETTLE_S = 5.0
"""Ray's view of free resources lags behind what jobs and actors let go of."""


def gpu_nodes() -> list[GpuNode]:
    """Nodes that live and have GPUs, with what is free on them."""
    free = available_resources_per_node()
    return [
        GpuNode(
            node_id=entry["NodeID"],
            # Pods have host names of their own; nodes that share a machine do not.
            label=f"{entry['NodeManagerHostname']}/{entry['NodeID'][:6]}",
            num_gpus=entry["Resources"]["GPU"],
            num_free=free.get(entry["NodeID"], {}).get("GPU", 0.0),
        )
        for entry in ray.nodes()
        if entry["Alive"] and entry["Resources"].get("GPU", 0) > 0
    ]


def settled(enough: Callable[[Sequence[GpuNode]], bool], timeout_s: float = SETTLE_S) -> list[GpuNode]:
    """The nodes as soon as there is ``enough`` on them, or as they are after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not enough(nodes := gpu_nodes()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return nodes


def has_gpu_model() -> bool:
    """Whether Ray found GPUs by itself, or was told a number to schedule by."""
    return any(name.startswith("accelerator_type:") for name in ray.cluster_resources())


def on(node_id: str) -> NodeAffinitySchedulingStrategy:
    """There and nowhere else: an answer from another node would be taken for this one's."""
    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def look_everywhere(nodes: Sequence[GpuNode], wants: NodeWants) -> dict[str, dict[str, Seen]]:
    """Every node's looks, all nodes at once, by label. A node that does not answer has an error for each look."""
    look = ray.remote(num_cpus=0, max_retries=0)(node.look)
    asked = {
        look.options(scheduling_strategy=on(entry.node_id)).remote(wants, entry.node_id): entry.label for entry in nodes
    }
    limit_s = START_S + wants.timeout_s
    done, late = ray.wait(list(asked), num_returns=len(asked), timeout=limit_s) if asked else ([], [])
    reports = {asked[ref]: _report(ref, wants) for ref in done}
    for ref in late:
        ray.cancel(ref, force=True)
        reports[asked[ref]] = dict.fromkeys(wants.keys, Seen(error=f"the node did not answer within {limit_s:g} s"))
    return reports


def _report(ref: ray.ObjectRef, wants: NodeWants) -> dict[str, Seen]:
    try:
        return ray.get(ref)
    except RayError as error:
        return dict.fromkeys(wants.keys, Seen(error=last_line(error)))


def last_line(error: BaseException) -> str:
    """Ray's errors hold a whole traceback; its last line says what happened."""
    return (str(error).strip() or repr(error)).splitlines()[-1].strip()
