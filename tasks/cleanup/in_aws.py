"""What a run leaves in AWS: clusters, the pods' identity, adapters, images, and machines that are paid for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from serving.retire import adapters_of, retire
from tasks.cleanup.order import Order
from tasks.cleanup.parts import InUse, Leftover
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.kube_waits import wait_until_gone
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.owners import NOT_THERE, Owner, delete_unless, flow_run_of, foreign, is_ours
from tasks.cluster.settings import HyperPodSettings
from tasks.cluster.suspension import is_suspended, lift, since_of, suspended_by
from tasks.errors import ClusterNotReady
from tasks.image.ecr import Ecr

HOURS_PER_MONTH = 730


class RayResources:
    """The RayCluster that this run made, or the RayService, which belongs to no run."""

    def __init__(
        self,
        name: str,
        settings: HyperPodSettings,
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

    def __init__(self, settings: HyperPodSettings, kube: Callable[[], KubeRay], order: Order) -> None:
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


class Identity:
    """The pods' Pod Identity association; the role stays, the pipeline did not make it.

    It belongs to no run: while either cluster is there its pods need it to reach S3.
    """

    name = "identity"

    def __init__(self, settings: HyperPodSettings, identity: PodIdentity, kube: Callable[[], KubeRay]) -> None:
        self._settings, self._identity, self._kube = settings, identity, kube

    def unseen(self, run_name: str) -> list[Leftover]:
        return [Leftover(part=self.name, name=f"{self._settings.namespace}/{self._settings.service_account}")]

    def find(self, run_name: str) -> list[Leftover]:
        settings = self._settings
        role = self._identity.role(settings.namespace, settings.service_account)
        if role is None:
            return []
        resources = (("RayCluster", settings.train_cluster), ("RayService", settings.serve_name))
        users = [f"{kind} {name}" for kind, name in resources if self._kube().look(kind, settings.namespace, name)]
        name = f"{settings.namespace}/{settings.service_account}"
        is_ours = self._identity.is_ours(settings.namespace, settings.service_account)
        keep = "" if is_ours else "it was not made by this pipeline"
        keep = f"pods of {' and '.join(users)} need it" if users else keep
        return [Leftover(part=self.name, name=name, found=role, keep=keep)]

    def remove(self, run_name: str, left: Leftover) -> None:
        self._identity.remove(self._settings.namespace, self._settings.service_account)


class Adapters:
    """The run's adapters in the object store."""

    name = "adapters"

    def __init__(self, s3: Any, adapters_uri: str, keep: Callable[[], dict[str, str]], usd_per_gb_month: float) -> None:
        self._s3, self._uri, self._keep, self._usd_per_gb_month = s3, adapters_uri, keep, usd_per_gb_month

    def unseen(self, run_name: str) -> list[Leftover]:
        return [Leftover(part=self.name, name=f"adapters of {run_name} in {self._uri}")]

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
            for adapter, size in sorted(adapters_of(self._s3, self._uri, run_name).items())
        ]

    def remove(self, run_name: str, left: Leftover) -> None:
        """Looked at again: between the look and now it may have become champion."""
        if why := self._keep().get(left.name):
            raise InUse(f"adapter {left.name} was not removed: {why}, since a moment ago")
        retire(self._s3, self._uri, left.name)


class Machines:
    """HyperPod's machines: paid for while they run, whatever runs on them. Only told of."""

    name = "machines"

    def __init__(self, settings: HyperPodSettings, machines: HyperPodMachines) -> None:
        self._settings, self._machines = settings, machines

    def unseen(self, run_name: str) -> list[Leftover]:
        return [
            Leftover(part=self.name, name=group.instance_group, usd_per_h=round(group.count * group.usd_per_h, 2))
            for group in self._settings.groups
        ]

    def find(self, run_name: str) -> list[Leftover]:
        found = self._machines.machines()
        groups = self._settings.groups
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

    def remove(self, run_name: str, left: Leftover) -> None:
        raise NotImplementedError("machines are only told of")


class Images:
    """Images that this pipeline built and nothing runs any more; the newest of each repository stay."""

    name = "images"

    def __init__(
        self,
        ecr: Ecr,
        repositories: list[str],
        in_use: Callable[[], set[str]],
        keep_newest: int,
        usd_per_gb_month: float,
    ) -> None:
        self._ecr, self._repositories, self._in_use = ecr, repositories, in_use
        self._keep_newest, self._usd_per_gb_month = keep_newest, usd_per_gb_month

    def unseen(self, run_name: str) -> list[Leftover]:
        return [Leftover(part=self.name, name=repository) for repository in self._repositories]

    def find(self, run_name: str) -> list[Leftover]:
        """Of every run: images are made of their content, and runs share them."""
        in_use = self._in_use()
        left = []
        for repository in self._repositories:
            for age, image in enumerate(self._ecr.images(repository)):
                keep = "pods run it" if image.digest in in_use else ""
                keep = keep or (f"one of the newest {self._keep_newest}" if age < self._keep_newest else "")
                left.append(
                    Leftover(
                        part=self.name,
                        name=f"{repository}@{image.digest}",
                        found=f"{image.size_bytes / 1e9:.2f} GB, pushed {image.pushed_at:%Y-%m-%d}",
                        usd_per_h=round(image.size_bytes / 1e9 * self._usd_per_gb_month / HOURS_PER_MONTH, 6),
                        keep=keep,
                    )
                )
        return left

    def remove(self, run_name: str, left: Leftover) -> None:
        """Looked at again: between the look and now pods may have been made of it."""
        repository, _, digest = left.name.partition("@")
        if digest in self._in_use():
            raise InUse(f"image {left.name} was not removed: pods run it, since a moment ago")
        self._ecr.delete(repository, digest)


def images_in_use(settings: HyperPodSettings, kube: Callable[[], KubeRay]) -> set[str]:
    """Digests of the images that the pods of both clusters are made of."""
    found = set()
    for kind, name in (("RayCluster", settings.train_cluster), ("RayService", settings.serve_name)):
        spec = (kube().look(kind, settings.namespace, name) or {}).get("spec", {})
        spec = spec.get("rayClusterConfig", spec)
        groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]] if spec else []
        for group in groups:
            found |= {c["image"].partition("@")[2] for c in group["template"]["spec"]["containers"]}
    return found
