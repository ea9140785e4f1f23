"""Who brings the Ray clusters up and takes them down. Settings choose; the stages ask for the same things."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from serving.settings import ServerSettings
from tasks.checks import ToCheck
from tasks.clients.serve_rest import ServeRest
from tasks.cluster.any_kubernetes import AnyKubernetes
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.hyperpod import HyperPod
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.owners import Owner
from tasks.cluster.settings import HostingSettings, KeptClusters, KubeRaySettings
from tasks.records import ImageRef

Say = Callable[[str], object]


class Hosting(Protocol):
    """Brings up and takes down; each verb finds what there is by name, and a second call changes nothing."""

    def training_up(self, owner: Owner, images: Mapping[str, ImageRef], say: Say) -> None:
        """The cluster that trains, ready; raises ClusterNotReady."""
        ...

    def training_down(self, owner: Owner, say: Say) -> None:
        """No cluster of this run any more; one of another run is left alone."""
        ...

    def make_room(self, owner: Owner, server: ServerSettings, images: Mapping[str, ImageRef], say: Say) -> None:
        """Serving lets the training have its machines; raises RolloutFailed for what would be refused after it."""
        ...

    def serving_up(self, server: ServerSettings, images: Mapping[str, ImageRef], say: Say) -> float:
        """The cluster that serves, with its application; raises RolloutFailed.

        Returns for how many seconds it was suspended.
        """
        ...

    def is_there(self) -> bool:
        """Whether the cluster that trains is there now."""
        ...

    def checks_before(self, serve_dashboard: str, listen: str) -> list[ToCheck]:
        """What must hold before the clusters are made."""
        ...

    def checks(self, serve_dashboard: str, listen: str) -> list[ToCheck]:
        """What must hold before a job is submitted."""
        ...


def hosting_of(settings: HostingSettings) -> Hosting:
    """The hosting that the settings name."""
    if isinstance(settings, KeptClusters):
        return Kept()
    kube = KubeRay(settings.kubeconfig, settings.context)
    if isinstance(settings, KubeRaySettings):
        return AnyKubernetes(settings, kube)
    return HyperPod(
        settings,
        kube,
        PodIdentity(settings.region, settings.eks_cluster),
        HyperPodMachines(settings.region, settings.hyperpod_cluster),
    )


class Kept:
    """Clusters of somebody else's: nothing to make, nothing to remove."""

    def training_up(self, owner: Owner, images: Mapping[str, ImageRef], say: Say) -> None:
        say("the training cluster is kept outside this pipeline")

    def training_down(self, owner: Owner, say: Say) -> None:
        say("the training cluster is kept outside this pipeline")

    def make_room(self, owner: Owner, server: ServerSettings, images: Mapping[str, ImageRef], say: Say) -> None:
        """Both clusters have their machines."""

    def serving_up(self, server: ServerSettings, images: Mapping[str, ImageRef], say: Say) -> float:
        say("the serving cluster is kept outside this pipeline")
        return 0.0

    def is_there(self) -> bool:
        """Somebody keeps it; whether it answers is looked at by those who ask it."""
        return True

    def checks_before(self, serve_dashboard: str, listen: str) -> list[ToCheck]:
        return self.checks(serve_dashboard, listen)

    def checks(self, serve_dashboard: str, listen: str) -> list[ToCheck]:
        return [
            ToCheck(
                "the serving cluster takes applications",
                lambda: str(ServeRest(serve_dashboard).applications() or "none is deployed yet"),
                "start the serving cluster (locally: make up) or correct serve.dashboard",
            ),
            ToCheck(
                "the endpoint's address is a running Serve's, or free",
                lambda: ServeRest(serve_dashboard).require_address(listen),
                "name such an address in platform.serve.server.listen and platform.serve.url",
            ),
        ]
