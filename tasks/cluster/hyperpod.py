"""RayCluster and RayService on HyperPod's EKS cluster, the pods' AWS identity with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from serving.settings import ServerSettings
from tasks.checks import ToCheck, require_ready, run_checks
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.checks import cluster_checks, machine_checks
from tasks.cluster.kube_waits import wait_for_cluster, wait_for_identity, wait_for_service, wait_until_gone
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.manifests import RUN_LABEL, ray_cluster, ray_service, service_account
from tasks.cluster.settings import HyperPodSettings
from tasks.errors import RolloutFailed
from tasks.records import ImageRef

Say = Callable[[str], object]


class HyperPod:
    """RayCluster and RayService on HyperPod's EKS cluster, the pods' AWS identity with them."""

    def __init__(
        self,
        settings: HyperPodSettings,
        kube: KubeRay,
        identity: PodIdentity,
        machines: HyperPodMachines,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._settings, self._kube, self._identity, self._machines = settings, kube, identity, machines
        self._sleep = sleep

    def training_up(self, run_name: str, images: Mapping[str, ImageRef], say: Say) -> None:
        """Machines are looked at first: a RayCluster without them would wait for an hour."""
        settings = self._settings
        require_ready(run_checks(machine_checks(settings, self._kube, self._machines), settings.check_timeout_s))
        self._identity_first(say)
        self._apply(ray_cluster(settings, run_name, _image(images, "train", settings.train_image)), say)
        self._wait_for_training(say)
        wait_for_identity(
            self._kube,
            settings.namespace,
            settings.train_cluster,
            settings.ready_timeout_s,
            settings.poll_s,
            say,
            self._sleep,
        )
        self._wait_for_training(say)
        workers = settings.workers
        gpus = workers.count * workers.num_gpus
        say(f"RayCluster {settings.namespace}/{settings.train_cluster} is ready: {workers.count} workers, {gpus} GPUs")

    def training_down(self, run_name: str, say: Say) -> None:
        settings = self._settings
        there = self._kube.look("RayCluster", settings.namespace, settings.train_cluster)
        where = f"RayCluster {settings.namespace}/{settings.train_cluster}"
        if there is None:
            say(f"{where}: not there")
        elif (owner := there["metadata"].get("labels", {}).get(RUN_LABEL)) != run_name:
            say(f"{where} belongs to {owner}: left alone")
        else:
            self._delete("RayCluster", settings.train_cluster, say)

    def serving_up(self, server: ServerSettings, images: Mapping[str, ImageRef], say: Say) -> None:
        """A RayService whose pods would have to change is made anew or left alone, as ``replace_serving`` says."""
        settings = self._settings
        image = _image(images, "serve", settings.serve_image)
        wanted = ray_service(settings, server, image)
        there = self._kube.look("RayService", settings.namespace, settings.serve_name)
        if there is not None and not self._kube.same_pods(there, wanted):
            if not settings.replace_serving:
                raise RolloutFailed(
                    f"RayService {settings.namespace}/{settings.serve_name} runs other pods than this run wants "
                    f"({image}), and KubeRay would need twice the GPUs to change them; set "
                    "hosting.replace_serving to make it anew (its endpoint is away meanwhile)"
                )
            self._delete("RayService", settings.serve_name, say)
        self._identity_first(say)
        self._apply(wanted, say)
        wait_for_service(
            self._kube,
            settings.namespace,
            settings.serve_name,
            server.app_name,
            settings.ready_timeout_s,
            settings.poll_s,
            say,
            self._sleep,
        )

    def checks(self, serve_dashboard: str, listen: str) -> list[ToCheck]:
        return cluster_checks(self._settings, self._kube, self._identity)

    def _identity_first(self, say: Say) -> None:
        """Pods get their AWS credentials when they are admitted, so account and association are there before them."""
        settings = self._settings
        self._apply(service_account(settings), say)
        done = self._identity.ensure(settings.namespace, settings.service_account, settings.role_arn)
        say(f"Pod Identity of {settings.namespace}/{settings.service_account}: {done}")
        if done != "unchanged":
            self._sleep(settings.identity_settle_s)

    def _wait_for_training(self, say: Say) -> None:
        settings = self._settings
        wait_for_cluster(
            self._kube,
            settings.namespace,
            settings.train_cluster,
            settings.workers.count,
            settings.ready_timeout_s,
            settings.poll_s,
            say,
            self._sleep,
        )

    def _apply(self, manifest: dict[str, object], say: Say) -> None:
        done = self._kube.apply(manifest)
        metadata: dict[str, str] = manifest["metadata"]  # type: ignore[assignment]
        say(f"{manifest['kind']} {self._settings.namespace}/{metadata['name']}: {done}")

    def _delete(self, kind: str, name: str, say: Say) -> None:
        settings = self._settings
        where = f"{kind} {settings.namespace}/{name}"
        if not self._kube.delete(kind, settings.namespace, name):
            say(f"{where}: not there")
            return
        say(f"{where}: deleting")
        wait_until_gone(
            self._kube, kind, settings.namespace, name, settings.ready_timeout_s, settings.poll_s, self._sleep
        )
        say(f"{where}: gone")


def _image(images: Mapping[str, ImageRef], name: str, pinned: str) -> str:
    """What the run built, or what the settings pin; a lock of an installed environment is no image."""
    built = images.get(name)
    return built.uri if built and built.content else pinned
