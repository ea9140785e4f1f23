"""What differs on any Kubernetes cluster with KubeRay: little. Rights and places are asked for, a queue may decide."""

from __future__ import annotations

import time
from collections.abc import Callable

from tasks.checks import ToCheck
from tasks.cluster.checks import (
    ASKED,
    Verbs,
    access_check,
    cluster_check,
    images_check,
    places_check,
    training_place_check,
)
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.ray_hosting import RayHosting
from tasks.cluster.settings import KubeRaySettings
from tasks.cluster.suspension import Now, utc_now

ASKED_OF_KUEUE: Verbs = {("kueue.x-k8s.io", "workloads"): ("list",)}
"""Why a RayCluster is not let in: without it a wait says less."""
ACCESS_REMEDY = "`kubectl apply -f docker/role-kuberay.yaml` (docs/cluster.md)"


class AnyKubernetes(RayHosting):
    """RayCluster and RayService on a cluster that somebody keeps; pods get what its secrets and accounts give."""

    def __init__(
        self,
        settings: KubeRaySettings,
        kube: KubeRay,
        sleep: Callable[[float], object] = time.sleep,
        now: Now = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(settings, kube, sleep, now, clock)
        self._is_queued = bool(settings.queue)

    def training_checks(self) -> list[ToCheck]:
        return [self._access(), training_place_check(self._settings, self._kube, self._is_queued)]

    def room_checks(self) -> list[ToCheck]:
        return [
            self._access(),
            images_check(self._settings),
            places_check(self._settings, self._kube, self._is_queued),
        ]

    def checks(self, serve_dashboard: str, listen: str) -> list[ToCheck]:
        return [
            self._access(),
            cluster_check(self._settings, self._kube),
            places_check(self._settings, self._kube, self._is_queued),
        ]

    def _access(self) -> ToCheck:
        asked = {**ASKED, **ASKED_OF_KUEUE} if self._is_queued else ASKED
        return access_check(self._settings, self._kube, asked, ACCESS_REMEDY)
