"""What a run leaves behind, part by part: find it, say what it costs, take it away. Not being there is done."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from serving.retire import adapter_sizes, retire
from tasks.adapters import ClusterUnreachable, JobsClient
from tasks.adapters.aws import HyperPodMachines, PodIdentity
from tasks.adapters.kube_waits import wait_until_gone
from tasks.adapters.kuberay import KubeRay
from tasks.hyperpod_settings import HyperPodSettings
from tasks.manifests import RUN_LABEL
from tasks.records import Leftover

HOURS_PER_MONTH = 730
Say = Callable[[str], object]


class LeftPart(Protocol):
    """One kind of thing."""

    name: str

    def find(self, run_name: str) -> list[Leftover]: ...

    def remove(self, left: Leftover) -> None:
        """Take it away and wait until it is gone."""
        ...


class Jobs:
    """Ray jobs of the run that wait or run. A cluster that is gone has none."""

    name = "jobs"

    def __init__(
        self, connect: Callable[[], JobsClient], timeout_s: float, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._connect, self._timeout_s, self._sleep = connect, timeout_s, sleep

    def find(self, run_name: str) -> list[Leftover]:
        try:
            unfinished = self._connect().unfinished()
        except ClusterUnreachable:
            return []
        return [Leftover(part=self.name, name=job, found="unfinished") for job in unfinished if _is_of(job, run_name)]

    def remove(self, left: Leftover) -> None:
        jobs = self._connect()
        jobs.stop(left.name)
        for _ in range(int(self._timeout_s) + 1):
            if jobs.state(left.name).is_final:
                return
            self._sleep(1.0)
        raise ClusterUnreachable(f"job {left.name} has not ended {self._timeout_s:g} s after it was stopped")


class RayResources:
    """The RayCluster that this run made, or the RayService, which belongs to no run."""

    def __init__(self, name: str, settings: HyperPodSettings, kube: KubeRay) -> None:
        self.name, self._settings, self._kube = name, settings, kube

    def find(self, run_name: str) -> list[Leftover]:
        settings = self._settings
        kind, name, usd_per_h = self._resource()
        there = self._kube.look(kind, settings.namespace, name)
        if there is None:
            return []
        owner = there["metadata"].get("labels", {}).get(RUN_LABEL, run_name)
        keep = "" if owner == run_name else f"it belongs to run {owner}"
        state = there.get("status", {}).get("state") or there.get("status", {}).get("serviceStatus") or "no status"
        where = f"{kind} {settings.namespace}/{name}"
        return [Leftover(part=self.name, name=where, found=state, usd_per_h=round(usd_per_h, 2), keep=keep)]

    def remove(self, left: Leftover) -> None:
        settings = self._settings
        kind, name, _ = self._resource()
        if self._kube.delete(kind, settings.namespace, name):
            wait_until_gone(self._kube, kind, settings.namespace, name, settings.ready_timeout_s, settings.poll_s)

    def _resource(self) -> tuple[str, str, float]:
        """Kind, name and what the machines that it asks for cost an hour."""
        settings = self._settings
        head, worker = settings.head.usd_per_h, settings.workers.usd_per_h
        if self.name == "serving":
            return "RayService", settings.serve_name, head + worker
        return "RayCluster", settings.train_cluster, head + settings.workers.count * worker


class Identity:
    """The pods' Pod Identity association; the role stays, the pipeline did not make it."""

    name = "identity"

    def __init__(self, settings: HyperPodSettings, identity: PodIdentity) -> None:
        self._settings, self._identity = settings, identity

    def find(self, run_name: str) -> list[Leftover]:
        settings = self._settings
        role = self._identity.role(settings.namespace, settings.service_account)
        name = f"{settings.namespace}/{settings.service_account}"
        return [] if role is None else [Leftover(part=self.name, name=name, found=role)]

    def remove(self, left: Leftover) -> None:
        self._identity.remove(self._settings.namespace, self._settings.service_account)


class Adapters:
    """The run's adapters in the object store."""

    name = "adapters"

    def __init__(self, s3: Any, adapters_uri: str, keep: Callable[[], dict[str, str]], usd_per_gb_month: float) -> None:
        self._s3, self._uri, self._keep, self._usd_per_gb_month = s3, adapters_uri, keep, usd_per_gb_month

    def find(self, run_name: str) -> list[Leftover]:
        keep = self._keep()
        return [
            Leftover(
                part=self.name,
                name=adapter,
                found=f"{size / 1e6:.1f} MB in {self._uri}",
                usd_per_h=round(size / 1e9 * self._usd_per_gb_month / HOURS_PER_MONTH, 6),
                keep=keep.get(adapter, ""),
            )
            for adapter, size in sorted(adapter_sizes(self._s3, self._uri, f"{run_name}-step-").items())
        ]

    def remove(self, left: Leftover) -> None:
        retire(self._s3, self._uri, left.name)


class Machines:
    """HyperPod's machines: paid for while they run, whatever runs on them. Only told of."""

    name = "machines"

    def __init__(self, settings: HyperPodSettings, machines: HyperPodMachines) -> None:
        self._settings, self._machines = settings, machines

    def find(self, run_name: str) -> list[Leftover]:
        found = self._machines.machines()
        groups = (self._settings.head, self._settings.workers)
        counts = {group: sum(machine.instance_group == group.instance_group for machine in found) for group in groups}
        return [
            Leftover(
                part=self.name,
                name=group.instance_group,
                found=f"{count} x {group.instance_type}",
                usd_per_h=round(count * group.usd_per_h, 2),
                keep="scale the instance group down when nothing else uses it (`aws sagemaker update-cluster`)",
            )
            for group, count in counts.items()
            if count
        ]

    def remove(self, left: Leftover) -> None:
        raise NotImplementedError("machines are only told of")


def clean(parts: Sequence[LeftPart], remove: Sequence[str], run_name: str, dry_run: bool, say: Say) -> list[Leftover]:
    """Take away what may go of the named parts, in the order of ``parts``; returns what is there afterwards.

    A part that fails keeps none of the others; all failures are raised together, at the end.
    """
    failures: list[Exception] = []
    left: list[Leftover] = []
    for part in parts:
        try:
            left += _clean_part(part, part.name in remove, run_name, dry_run, say)
        except Exception as error:
            say(f"{part.name}: {error}")
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"clean-up of {run_name} is not complete; run it again", failures)
    return left


def _clean_part(part: LeftPart, may_go: bool, run_name: str, dry_run: bool, say: Say) -> list[Leftover]:
    stays = []
    for left in part.find(run_name):
        if left.keep or not may_go:
            say(f"{left.part}: {left.name} stays ({left.keep or 'not asked to remove'})")
            stays.append(left)
        elif dry_run:
            say(f"{left.part}: {left.name} would be removed")
            stays.append(left)
        else:
            say(f"{left.part}: removing {left.name}")
            part.remove(left)
    return stays


def _is_of(job: str, run_name: str) -> bool:
    """Names are ``<run>-<stage>-<attempt>`` or have a step before the attempt; ``a`` must not end ``a-b``'s jobs."""
    return re.fullmatch(rf"{re.escape(run_name)}-[a-z]+(-\d+)?-\d+", job) is not None
