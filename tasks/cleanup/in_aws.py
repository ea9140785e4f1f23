"""What a run leaves in AWS: the pods' identity, adapters, images, and machines that are paid for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from serving.retire import adapters_of, retire
from tasks.cleanup.parts import InUse, Leftover
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.settings import HyperPodSettings
from tasks.image.ecr import Ecr

HOURS_PER_MONTH = 730


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
