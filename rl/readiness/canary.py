"""The all-reduce canary: one rank per GPU, as training has them, adds up its number with the others'.

A network between nodes that is half open, or GPUs that cannot reach each other, make the first collective of a run
hang for ever. Here it hangs for a limited time, and then its ranks are killed.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import ray
from ray.exceptions import RayError

from rl.readiness.checks import GpuNode, Unready
from rl.readiness.cluster import last_line, on, settled
from rl.readiness.settings import START_S

NUM_ELEMENTS = 2**20
"""4 MiB: enough that the data take the way that training's take."""
RELEASE_S = 20.0
"""How long killed ranks may take to let go of their GPUs."""


class Rank:
    """One rank, in a process of its own with one GPU. torch is imported here only."""

    def rendezvous(self) -> str:
        """Where the ranks meet: this node's address and a free port."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return f"tcp://{ray.util.get_node_ip_address()}:{probe.getsockname()[1]}"

    def add_up(self, rendezvous: str, rank: int, world_size: int, device: str) -> tuple[float, float, float]:
        """Smallest and largest element of the sum, and the seconds that it took."""
        import torch
        import torch.distributed as dist

        dist.init_process_group(
            "nccl" if device == "cuda" else "gloo",
            init_method=rendezvous,
            rank=rank,
            world_size=world_size,
            # The limit is the caller's, who kills this process: torch's own does not end a hanging kernel.
            timeout=timedelta(hours=1),
        )
        numbers = torch.full((NUM_ELEMENTS,), rank + 1.0, device=device)
        started = time.monotonic()
        dist.all_reduce(numbers)
        low, high = float(numbers.min()), float(numbers.max())
        return low, high, time.monotonic() - started


def all_reduce(nodes: Sequence[GpuNode], num_gpus: int, device: str, env: Mapping[str, str], timeout_s: float) -> str:
    """Add up over all free GPUs; raises Unready, at the latest ``timeout_s`` after the start. No rank is left then."""
    places = [node for node in nodes for _ in range(int(node.num_free))]
    if len(places) < num_gpus:
        raise Unready(f"not tried: {len(places)} GPUs are free, wanted {num_gpus}")
    remote = ray.remote(num_gpus=1, num_cpus=0, max_restarts=0)(Rank)
    ranks = [
        remote.options(scheduling_strategy=on(node.node_id), runtime_env={"env_vars": dict(env)}).remote()
        for node in places
    ]
    try:
        found = _add_up(ranks, [node.label for node in places], device, timeout_s)
    except (Unready, RayError) as error:
        raise Unready(f"{last_line(error)}{_end(ranks, len(places))}") from error
    if held := _end(ranks, len(places)):
        raise Unready(f"{found}{held}")
    return found


def _add_up(ranks: Sequence[Any], labels: Sequence[str], device: str, timeout_s: float) -> str:
    names = [f"rank {number} on {label}" for number, label in enumerate(labels)]
    places = [rank.rendezvous.remote() for rank in ranks]
    _answers(dict(zip(places, names, strict=True)), START_S, "did not start")
    meeting, world_size = places[0], len(ranks)
    sums = [rank.add_up.remote(meeting, number, world_size, device) for number, rank in enumerate(ranks)]
    answers = _answers(dict(zip(sums, names, strict=True)), timeout_s, "did not come back from the all-reduce")
    wanted = world_size * (world_size + 1) / 2
    wrong = {value for low, high, _ in answers for value in (low, high)} - {wanted}
    if wrong:
        raise Unready(f"{world_size} ranks added up to {sorted(wrong)}, wanted {wanted:g}")
    slowest_s = max(seconds for _, _, seconds in answers)
    return f"{world_size} ranks on {len(set(labels))} nodes added up to {wanted:g}, in {slowest_s:.2f} s"


def _answers(asked: Mapping[Any, str], timeout_s: float, what: str) -> list[Any]:
    """All answers; the first error ends the waiting, because the other ranks wait for the one that failed."""
    deadline = time.monotonic() + timeout_s
    waiting, answers = list(asked), []
    while waiting:
        done, waiting = ray.wait(waiting, timeout=max(0.0, deadline - time.monotonic()))
        if not done:
            late = ", ".join(asked[ref] for ref in waiting)
            raise Unready(f"{late} {what} within {timeout_s:g} s and were killed")
        try:
            answers.append(ray.get(done[0]))
        except RayError as error:
            raise Unready(f"{asked[done[0]]}: {last_line(error)}") from error
    return answers


def _end(ranks: Sequence[Any], num_free: int) -> str:
    """Kill the ranks, hanging or not, and wait until their GPUs are free; says so where they are not."""
    for rank in ranks:
        ray.kill(rank, no_restart=True)
    nodes = settled(lambda nodes: sum(node.num_free for node in nodes) >= num_free, RELEASE_S)
    free = sum(node.num_free for node in nodes)
    return "" if free >= num_free else f"; {RELEASE_S:g} s after they were killed {free:g} of {num_free} GPUs are free"
