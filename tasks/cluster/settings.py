"""Settings of the Ray clusters: where the one that trains is, and who brings it and the serving one up."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.names import EksName, KubernetesName, Namespace, RayClusterName, RayServiceName, SageMakerName
from tasks.settings import Settings

DIGEST = r"@sha256:[0-9a-f]{64}$"


class ClusterSettings(Settings):
    """The Ray cluster that trains."""

    jobs_address: str
    """Address of the Ray Jobs API, for example ``http://127.0.0.1:8265``."""
    num_gpus: float = Field(gt=0)
    """GPUs (or logical GPUs) that must be free before a job is submitted."""
    timeout_s: float = Field(default=600.0, gt=0)
    """How long to wait for them, in seconds."""
    poll_s: float = Field(default=5.0, gt=0)
    """Pause between two looks, in seconds."""


class KeptClusters(Settings):
    """Ray clusters that others keep: they are found where the settings say, never made and never removed."""

    kind: Literal["kept"] = "kept"

    @property
    def usd_per_h(self) -> float:
        """Nobody says what they cost."""
        return 0.0


class NodeGroup(Settings):
    """Equal machines of a HyperPod instance group."""

    instance_group: SageMakerName
    """Name of the group in the HyperPod cluster."""
    instance_type: str
    """SageMaker's name, for example ``ml.g7e.12xlarge``."""
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


class OwnMachines(Settings):
    """Serving has machines of its own: it goes on while a run trains."""

    kind: Literal["own"] = "own"
    head: NodeGroup
    """Where the ingress and the dashboard run; small."""
    worker: NodeGroup
    """Where the model answers: one machine of it."""


class TrainingMachines(Settings):
    """Serving stands on the machines that train: its endpoint is away from before a training until after it.

    KubeRay from 1.7 on is needed (RayService.spec.suspend).
    """

    kind: Literal["suspended"] = "suspended"


ServingMachines = Annotated[OwnMachines | TrainingMachines, Field(discriminator="kind")]


class HyperPodSettings(Settings):
    """Ray clusters on a SageMaker HyperPod cluster that is orchestrated by EKS."""

    kind: Literal["hyperpod"] = "hyperpod"
    region: str
    """AWS region."""
    hyperpod_cluster: SageMakerName
    """Name of the HyperPod cluster."""
    eks_cluster: EksName
    """Name of the EKS cluster that orchestrates it."""
    kubeconfig: str
    """File with the way to the EKS cluster, of this pipeline's own: a shared one's current context may change."""
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
    head: NodeGroup
    """Where the GCS, the dashboard and the job's driver run; its GPUs, if any, are not offered to Ray."""
    workers: NodeGroup
    """Where policy and engines run."""
    serving: ServingMachines
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
    """PersistentVolumeClaim (ReadWriteMany) of the FSx for Lustre file system."""
    shared_mount: str = "/shared"
    """Where it is mounted, on head and workers alike."""
    shared_size_gb: float = Field(gt=0)
    """Its size, in GB (10^9 bytes)."""
    shm_gib: int = Field(default=64, ge=1)
    """/dev/shm of every pod, in GiB; Kubernetes gives 64 MiB, which NCCL and Ray's object store outgrow."""
    service_account: KubernetesName
    """Kubernetes service account that the Pod Identity association is for."""
    role_arn: str = Field(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$")
    """IAM role with access to the adapters' bucket."""
    identity_settle_s: float = Field(default=20.0, ge=0)
    """Pause between a new Pod Identity association and the first pod, in seconds: pods made earlier never get it."""
    access_strategy: Literal["private", "public"] = "private"
    """Who may submit jobs: the identity that created the RayCluster, or whoever may connect in the namespace."""

    @property
    def serving_groups(self) -> tuple[NodeGroup, NodeGroup]:
        """The machine of serving's head, and the one of its worker."""
        serving = self.serving
        head, worker = (serving.head, serving.worker) if isinstance(serving, OwnMachines) else (self.head, self.workers)
        return head, worker.model_copy(update={"count": 1})

    @property
    def groups(self) -> tuple[NodeGroup, ...]:
        """Every instance group once, as large as the settings want it."""
        own = self.serving_groups if isinstance(self.serving, OwnMachines) else ()
        found: dict[str, NodeGroup] = {}
        for group in (self.head, self.workers, *own):
            before = found.get(group.instance_group)
            found[group.instance_group] = group if before is None or before.count < group.count else before
        return tuple(found.values())

    @property
    def usd_per_h(self) -> float:
        """All machines of the training cluster, in US dollars per hour."""
        return sum(group.count * group.usd_per_h for group in (self.head, self.workers))

    @model_validator(mode="after")
    def _serves_on_gpus_that_are_there(self) -> HyperPodSettings:
        _, worker = self.serving_groups
        if self.serve_gpus > worker.num_gpus:
            raise ValueError(
                f"serve_gpus is {self.serve_gpus}, a machine of {worker.instance_group} has {worker.num_gpus}; lower "
                "the one or take larger machines"
            )
        return self


HostingSettings = Annotated[KeptClusters | HyperPodSettings, Field(discriminator="kind")]
