"""Settings of Ray clusters that this pipeline makes on Kubernetes, whoever keeps the machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from tasks.names import KubernetesName, KubernetesNameOrEmpty, Namespace, RayClusterName, RayServiceName
from tasks.settings import Settings

DIGEST = r"@sha256:[0-9a-f]{64}$"
GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
"""What keeps other pods from GPU machines."""


class MachineGroup(Settings):
    """Equal machines, and what a Ray pod asks of each."""

    count: int = Field(ge=1)
    """Machines."""
    num_cpus: int = Field(ge=1)
    """vCPUs that a Ray pod asks for; below the machine's own, which system pods share."""
    memory_gib: int = Field(ge=1)
    """Memory that a Ray pod asks for, in GiB; below the machine's own for the same reason."""
    num_gpus: int = Field(ge=0)
    """GPUs of one machine."""
    free_cpus: float = Field(gt=0)
    """vCPUs that such a machine is expected to leave to Ray: its own less what kubelet and daemonsets take. The plan
    counts with it; before a run the nodes themselves are asked."""
    free_memory_gib: float = Field(gt=0)
    """Memory that it is expected to leave to Ray, in GiB."""
    usd_per_h: float = Field(ge=0)
    """Price of one machine, in US dollars per hour; from prefect.yaml, nobody looks it up."""

    @property
    def group_name(self) -> str:
        """What its keeper calls the group."""
        raise NotImplementedError

    @property
    def machine_type(self) -> str:
        """What plan and errors call one of its machines."""
        raise NotImplementedError

    @property
    def selector(self) -> dict[str, str]:
        """Labels that its nodes have and no others."""
        raise NotImplementedError

    @property
    def tolerated(self) -> list[dict[str, Any]]:
        """Taints of its nodes that a Ray pod puts up with."""
        return [GPU_TAINT] if self.num_gpus else []


class OwnMachines[G: MachineGroup](Settings):
    """Serving has machines of its own: it goes on while a run trains."""

    kind: Literal["own"] = "own"
    head: G
    """Where the ingress and the dashboard run; small."""
    worker: G
    """Where the model answers: one machine of it."""


class TrainingMachines(Settings):
    """Serving stands on the machines that train: its endpoint is away from before a training until after it.

    KubeRay from 1.7 on is needed (RayService.spec.suspend).
    """

    kind: Literal["suspended"] = "suspended"


@dataclass(frozen=True)
class Extras:
    """What clusters and pods have besides, by who keeps the machines."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the RayCluster that trains."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the same."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Of every pod."""
    env_secret: str = ""
    image_pull_secret: str = ""
    priority_class: str = ""


class RayOnKubernetes[G: MachineGroup](Settings):
    """A RayCluster that trains and a RayService, made by KubeRay."""

    kubeconfig: str
    """File with the way to the cluster, of this pipeline's own: a shared one's current context may change."""
    context: str = ""
    """Context of that file; empty takes its current one."""
    ready_timeout_s: float = Field(default=3600.0, gt=0)
    """How long a cluster may take to come up or to go, in seconds."""
    poll_s: float = Field(default=15.0, gt=0)
    """Pause between two looks, in seconds."""
    check_timeout_s: float = Field(default=60.0, gt=0)
    """Time for one look at the machines before a cluster is made, in seconds."""
    namespace: Namespace
    """Kubernetes namespace of all Ray resources."""
    train_cluster: RayClusterName
    """Name of the RayCluster that trains."""
    serve_name: RayServiceName
    """Name of the RayService."""
    take_over: bool = False
    """Take the RayCluster, the RayService and the service account's role of these names even where another run made
    them, or nobody of ours; a RayCluster with other pods is made anew. Whatever trains there may die of it."""
    head: G
    """Where the GCS, the dashboard and the job's driver run; its GPUs, if any, are not offered to Ray."""
    workers: G
    """Where policy and engines run."""
    serving: OwnMachines[G] | TrainingMachines = Field(discriminator="kind")
    """Which machines serve, and so whether the endpoint answers while a run trains."""
    train_image: str = Field(default="", pattern=f"^$|{DIGEST}")
    """Training image, pinned by digest; empty where the run builds it."""
    train_ray_version: str
    """Ray's version in the training image; KubeRay wants to be told."""
    serve_image: str = Field(default="", pattern=f"^$|{DIGEST}")
    """Ray Serve LLM image with this project's ``serving/``, pinned by digest; empty where the run builds it."""
    serve_ray_version: str
    """Ray's version in the serving image."""
    serve_gpus: int = Field(default=1, ge=1)
    """GPUs of the serving cluster's one worker."""
    replace_serving: bool = False
    """Delete a RayService whose pods differ from what is wanted, and make it anew: its endpoint is away meanwhile."""
    shared_claim: KubernetesName
    """PersistentVolumeClaim (ReadWriteMany) of the shared file system."""
    shared_mount: str = "/shared"
    """Where it is mounted, on head and workers alike."""
    shared_size_gb: float = Field(gt=0)
    """Its size, in GB (10^9 bytes)."""
    shm_gib: int = Field(default=64, ge=1)
    """/dev/shm of every pod, in GiB; Kubernetes gives 64 MiB, which NCCL and Ray's object store outgrow."""
    service_account: KubernetesNameOrEmpty
    """Kubernetes service account of every Ray pod; empty takes the namespace's default one."""

    @property
    def extras(self) -> Extras:
        """What clusters and pods have besides."""
        return Extras()

    @property
    def serving_groups(self) -> tuple[G, G]:
        """The machine of serving's head, and the one of its worker."""
        serving = self.serving
        head, worker = (serving.head, serving.worker) if isinstance(serving, OwnMachines) else (self.head, self.workers)
        return head, worker.model_copy(update={"count": 1})

    @property
    def groups(self) -> tuple[G, ...]:
        """Every group of machines once, as large as the settings want it."""
        own = self.serving_groups if isinstance(self.serving, OwnMachines) else ()
        found: dict[str, G] = {}
        for group in (self.head, self.workers, *own):
            before = found.get(group.group_name)
            found[group.group_name] = group if before is None or before.count < group.count else before
        return tuple(found.values())

    @property
    def usd_per_h(self) -> float:
        """All machines of the training cluster, in US dollars per hour."""
        return sum(group.count * group.usd_per_h for group in (self.head, self.workers))

    @model_validator(mode="after")
    def _serves_on_gpus_that_are_there(self) -> Self:
        _, worker = self.serving_groups
        if self.serve_gpus > worker.num_gpus:
            raise ValueError(
                f"serve_gpus is {self.serve_gpus}, a machine of {worker.group_name} has {worker.num_gpus}; lower "
                "the one or take larger machines"
            )
        return self
