"""Settings of the Ray clusters: where the one that trains is, and who brings it and the serving one up."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tasks.cluster.labels import GROUP_LABEL, HEALTHY_NODE, QUEUE_LABEL, TYPE_LABEL
from tasks.cluster.ray_settings import Extras, MachineGroup, OwnMachines, RayOnKubernetes, TrainingMachines
from tasks.names import EksName, KubernetesName, KubernetesNameOrEmpty, SageMakerName
from tasks.settings import Settings

__all__ = ["MachineGroup", "OwnMachines", "RayOnKubernetes", "TrainingMachines"]


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


class NodeGroup(MachineGroup):
    """Equal machines of a HyperPod instance group."""

    instance_group: SageMakerName
    """Name of the group in the HyperPod cluster."""
    instance_type: str
    """SageMaker's name, for example ``ml.g7e.12xlarge``."""

    @property
    def group_name(self) -> str:
        return self.instance_group

    @property
    def machine_type(self) -> str:
        return self.instance_type

    @property
    def selector(self) -> dict[str, str]:
        return {TYPE_LABEL: self.instance_type, GROUP_LABEL: self.instance_group, **HEALTHY_NODE}


class HyperPodSettings(RayOnKubernetes[NodeGroup]):
    """Ray clusters on a SageMaker HyperPod cluster that is orchestrated by EKS."""

    kind: Literal["hyperpod"] = "hyperpod"
    region: str
    """AWS region."""
    hyperpod_cluster: SageMakerName
    """Name of the HyperPod cluster."""
    eks_cluster: EksName
    """Name of the EKS cluster that orchestrates it."""
    service_account: KubernetesName
    """Kubernetes service account that the Pod Identity association is for."""
    role_arn: str = Field(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$")
    """IAM role with access to the adapters' bucket."""
    identity_settle_s: float = Field(default=20.0, ge=0)
    """Pause between a new Pod Identity association and the first pod, in seconds: pods made earlier never get it."""
    access_strategy: Literal["private", "public"] = "private"
    """Who may submit jobs: the identity that created the RayCluster, or whoever may connect in the namespace."""

    @property
    def extras(self) -> Extras:
        """boto3 and the AWS CLI read AWS_DEFAULT_REGION alone (botocore/configprovider.py), other SDKs AWS_REGION."""
        return Extras(
            annotations={
                "access.sagemaker.amazonaws.com/enabled": "true",
                "access.sagemaker.amazonaws.com/access-strategy": f"ray-access-strategy-{self.access_strategy}",
            },
            env={"AWS_DEFAULT_REGION": self.region, "AWS_REGION": self.region},
        )


class Toleration(Settings):
    """A taint that pods put up with, in Kubernetes' words."""

    key: str
    """The taint's key."""
    operator: Literal["Equal", "Exists"] = "Exists"
    """Exists: whatever its value."""
    value: str = ""
    """The taint's value, where the operator is Equal."""
    effect: Literal["", "NoSchedule", "NoExecute", "PreferNoSchedule"] = ""
    """Empty: every effect."""


class LabelledMachines(MachineGroup):
    """Equal machines of a Kubernetes cluster, known by their labels."""

    name: KubernetesName
    """What plan and errors call them."""
    node_selector: dict[str, str] = Field(min_length=1)
    """Labels that these nodes have and no others."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of these nodes; nvidia.com/gpu is tolerated where there are GPUs."""
    usd_per_h: float = Field(default=0.0, ge=0)
    """Price of one machine, in US dollars per hour; 0 where nobody says it."""

    @property
    def group_name(self) -> str:
        return self.name

    @property
    def machine_type(self) -> str:
        return self.name

    @property
    def selector(self) -> dict[str, str]:
        return dict(self.node_selector)

    @property
    def tolerated(self) -> list[dict[str, Any]]:
        own = [{name: value for name, value in each.model_dump().items() if value} for each in self.tolerations]
        return [*super().tolerated, *own]


class KubeRaySettings(RayOnKubernetes[LabelledMachines]):
    """Ray clusters on any Kubernetes cluster that has KubeRay's operator."""

    kind: Literal["kuberay"] = "kuberay"
    kubeconfig: str = ""
    """File with the way to the cluster. Empty: the flow runs in a pod of it, as that pod's service account."""
    service_account: KubernetesNameOrEmpty = ""
    """Kubernetes service account of every Ray pod, which is there already; empty takes the namespace's default one."""
    env_secret: KubernetesNameOrEmpty = ""
    """Kubernetes secret whose entries are environment of every Ray pod, such as AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL; empty where the service account gives access to the object store."""
    image_pull_secret: KubernetesNameOrEmpty = ""
    """Kubernetes secret with which images are pulled; empty where none is needed."""
    queue: KubernetesNameOrEmpty = ""
    """Kueue's LocalQueue, which lets the RayCluster that trains in when there is room; empty without Kueue. Serving is
    not queued."""
    priority_class: KubernetesNameOrEmpty = ""
    """PriorityClass of every Ray pod; Kueue orders its queue by it too. Empty takes the cluster's default."""

    @property
    def extras(self) -> Extras:
        """What the settings name, and nothing else."""
        return Extras(
            labels={QUEUE_LABEL: self.queue} if self.queue else {},
            env_secret=self.env_secret,
            image_pull_secret=self.image_pull_secret,
            priority_class=self.priority_class,
        )


MadeClusters = Annotated[HyperPodSettings | KubeRaySettings, Field(discriminator="kind")]
HostingSettings = Annotated[KeptClusters | HyperPodSettings | KubeRaySettings, Field(discriminator="kind")]
