"""What a run leaves in Kubernetes: its RayCluster, the RayService, an endpoint that is away for its training."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tasks.cleanup.order import Order
from tasks.cleanup.parts import Leftover
from tasks.cluster.kube_waits import wait_until_gone
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.owners import NOT_THERE, Owner, delete_unless, flow_run_of, foreign, is_ours
from tasks.cluster.ray_settings import RayOnKubernetes
from tasks.cluster.suspension import is_suspended, lift, since_of, suspended_by
from tasks.errors import ClusterNotReady


class RayResources:
    """The RayCluster that this run made, or the RayService, which belongs to no run."""

    def __init__(
        self,
        name: str,
        settings: RayOnKubernetes,
        kube: Callable[[], KubeRay],
        order: Order,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.name, self._settings, self._kube, self._order = name, settings, kube, order
        self._sleep = sleep

    def unseen(self, run_name: str) -> list[Leftover]:
        kind, name, usd_per_h = self._resource()
        where = f"{kind} {self._settings.namespace}/{name}"
        return [Leftover(part=self.name, name=where, usd_per_h=round(usd_per_h, 2))]

    def find(self, run_name: str) -> list[Leftover]:
        settings = self._settings
        kind, name, usd_per_h = self._resource()
        there = self._kube().look(kind, settings.namespace, name)
        if there is None:
            return []
        keep = self._why_it_stays(there, run_name)
        state = there.get("status", {}).get("state") or there.get("status", {}).get("serviceStatus") or "no status"
        where = f"{kind} {settings.namespace}/{name}"
        return [Leftover(part=self.name, name=where, found=state, usd_per_h=round(usd_per_h, 2), keep=keep)]

    def remove(self, run_name: str, left: Leftover) -> None:
        """Looked at again: between the look and now another run may have taken it over."""
        settings = self._settings
        kind, name, _ = self._resource()
        why = delete_unless(
            self._kube(), kind, settings.namespace, name, lambda there: self._why_it_stays(there, run_name)
        )
        if why and why != NOT_THERE:
            raise ClusterNotReady(f"{left.name} was not removed: {why}, since a moment ago; run the clean-up again")
        wait_until_gone(
            self._kube(), kind, settings.namespace, name, settings.ready_timeout_s, settings.poll_s, self._sleep
        )

    def _why_it_stays(self, there: dict[str, Any], run_name: str) -> str:
        if self.name == "training":
            return foreign(there, Owner(run_name)) or self._order.keeps(flow_run_of(there))
        return "" if is_ours(there) else "it was not made by this pipeline"

    def _resource(self) -> tuple[str, str, float]:
        """Kind, name and what the machines that it asks for cost an hour."""
        settings = self._settings
        if self.name == "serving":
            head, worker = settings.serving_groups
            return "RayService", settings.serve_name, head.usd_per_h + worker.usd_per_h
        usd_per_h = settings.head.usd_per_h + settings.workers.count * settings.workers.usd_per_h
        return "RayCluster", settings.train_cluster, usd_per_h


class Suspension:
    """Serving that was suspended for this run's training: with the training cluster it goes, and the endpoint is back.

    A run that ends badly leaves it behind. While any training cluster of the name is there it stays.
    """

    name = "training"

    def __init__(self, settings: RayOnKubernetes, kube: Callable[[], KubeRay], order: Order) -> None:
        self._settings, self._kube, self._order = settings, kube, order

    def unseen(self, run_name: str) -> list[Leftover]:
        return []

    def find(self, run_name: str) -> list[Leftover]:
        settings = self._settings
        there = self._kube().look("RayService", settings.namespace, settings.serve_name)
        if there is None or not is_suspended(there):
            return []
        since = since_of(there) or "nobody noted when"
        name = f"suspension of RayService {settings.namespace}/{settings.serve_name}"
        return [Leftover(part=self.name, name=name, found=f"since {since}", keep=self._why_it_stays(there, run_name))]

    def remove(self, run_name: str, left: Leftover) -> None:
        """Looked at again: another run may have made it its own."""
        lift(self._kube(), self._settings, lambda there: self._why_it_stays(there, run_name))

    def _why_it_stays(self, there: dict[str, Any], run_name: str) -> str:
        settings, by = self._settings, suspended_by(there)
        if by.run_name != run_name:
            return f"it makes room for {f'run {by.run_name}' if by.run_name else 'nobody of ours'}"
        if why := self._order.keeps(by.flow_run_id):
            return why
        trains = self._kube().look("RayCluster", settings.namespace, settings.train_cluster)
        return f"RayCluster {settings.train_cluster} has its machines" if trains else ""


def images_in_use(settings: RayOnKubernetes, kube: Callable[[], KubeRay]) -> set[str]:
    """Digests of the images that the pods of both clusters are made of."""
    found = set()
    for kind, name in (("RayCluster", settings.train_cluster), ("RayService", settings.serve_name)):
        spec = (kube().look(kind, settings.namespace, name) or {}).get("spec", {})
        spec = spec.get("rayClusterConfig", spec)
        groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]] if spec else []
        for group in groups:
            found |= {c["image"].partition("@")[2] for c in group["template"]["spec"]["containers"]}
    return found
