"""What differs on HyperPod: its machines are looked at, and pods have an AWS identity that is there before them."""

from __future__ import annotations

import time
from collections.abc import Callable

from tasks.checks import ToCheck
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.aws_checks import (
    ACCESS_REMEDY,
    ASKED_ON_AWS,
    identity_check,
    machine_checks,
    serving_machines_check,
)
from tasks.cluster.checks import access_check, cluster_check, places_check, training_place_check
from tasks.cluster.kube_waits import wait_for_identity
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.manifests import service_account
from tasks.cluster.owners import settled
from tasks.cluster.ray_hosting import RayHosting, Say
from tasks.cluster.settings import HyperPodSettings
from tasks.cluster.suspension import Now, utc_now


class HyperPod(RayHosting):
    """RayCluster and RayService on HyperPod's EKS cluster, the pods' AWS identity with them."""

    def __init__(
        self,
        settings: HyperPodSettings,
        kube: KubeRay,
        identity: PodIdentity,
        machines: HyperPodMachines,
        sleep: Callable[[float], object] = time.sleep,
        now: Now = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(settings, kube, sleep, now, clock)
        self._hyperpod, self._identity, self._machines = settings, identity, machines

    def training_checks(self) -> list[ToCheck]:
        settings, kube = self._hyperpod, self._kube
        return [
            self._access(),
            *machine_checks(settings, kube, self._machines),
            training_place_check(settings, kube),
        ]

    def room_checks(self) -> list[ToCheck]:
        settings = self._hyperpod
        return [self._access(), serving_machines_check(settings, self._machines), places_check(settings, self._kube)]

    def checks(self, serve_dashboard: str, listen: str) -> list[ToCheck]:
        settings, kube = self._hyperpod, self._kube
        return [
            self._access(),
            cluster_check(settings, kube),
            identity_check(settings, kube, self._identity),
            places_check(settings, kube),
        ]

    def before_pods(self, say: Say) -> None:
        """Pods get their AWS credentials when they are admitted, so account and association are there before them."""
        settings = self._hyperpod
        settled(lambda: self._apply(service_account(settings), say))
        done = self._identity.ensure(
            settings.namespace, settings.service_account, settings.role_arn, settings.take_over
        )
        say(f"Pod Identity of {settings.namespace}/{settings.service_account}: {done}")
        if done != "unchanged":
            self._sleep(settings.identity_settle_s)

    def after_training_pods(self, say: Say) -> None:
        settings = self._hyperpod
        wait_for_identity(
            self._kube,
            settings.namespace,
            settings.train_cluster,
            settings.ready_timeout_s,
            settings.poll_s,
            say,
            self._sleep,
            self._clock,
        )

    def _access(self) -> ToCheck:
        return access_check(self._hyperpod, self._kube, ASKED_ON_AWS, ACCESS_REMEDY)
