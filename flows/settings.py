"""One settings object per flow, one field per stage. Values live in prefect.yaml."""

from __future__ import annotations

from pydantic import Field, model_validator

from rl.settings import BaseModelSettings, DataSettings, Settings, TrainSettings
from serving.settings import ServerSettings
from tasks.cleanup.settings import CleanupScope, CleanupSettings
from tasks.cluster.settings import ClusterSettings, HostingSettings, HyperPodSettings
from tasks.evidence.settings import ReportSettings
from tasks.image.settings import ImageSettings
from tasks.plan.settings import PlanSettings
from tasks.readiness.settings import ReadinessSettings
from tasks.release.settings import GateSettings, PlaySettings, ProofSettings, ServeSettings
from tasks.settings import JobSettings, TrackingSettings


class RetrainSettings(Settings):
    """Everything the retrain flow needs."""

    run_name: str = Field(default="", pattern=r"^([a-z0-9][a-z0-9-]{0,62})?$")
    """Names the run everywhere; empty takes the profile and the start time. An old name goes on with that run."""
    image: ImageSettings
    hosting: HostingSettings
    """Who brings the Ray clusters up."""
    cluster: ClusterSettings
    readiness: ReadinessSettings
    job: JobSettings
    train: TrainSettings
    tracking: TrackingSettings
    serve: ServeSettings
    play: PlaySettings
    proof: ProofSettings
    gate: GateSettings
    report: ReportSettings
    cleanup: CleanupSettings
    """What is taken away when the run ends, however it ends."""

    @property
    def scope(self) -> CleanupScope:
        """Where this run's things are."""
        return CleanupScope(
            cleanup=self.cleanup,
            image=self.image,
            hosting=self.hosting,
            cluster=self.cluster,
            job=self.job,
            shared_dir=self.train.shared_dir,
            server=self.serve.server,
            tracking=self.tracking,
        )

    @model_validator(mode="after")
    def _server_takes_the_adapter(self) -> RetrainSettings:
        rank, most = self.train.lora.rank, self.serve.server.max_lora_rank
        if rank > most:
            raise ValueError(
                f"train.lora.rank is {rank}, serve.server.max_lora_rank {most}: the adapter could never be served; "
                "lower the one or raise the other"
            )
        reply, trained = self.play.max_reply_tokens, self.train.grpo.max_reply_tokens
        if reply != trained:
            raise ValueError(
                f"play.max_reply_tokens is {reply}, train.grpo.max_reply_tokens {trained}: the endpoint's evaluation "
                "could not be compared with training's; set both alike"
            )
        images, turns = self.serve.server.max_images, self.train.data.max_turns
        if images < turns:
            raise ValueError(
                f"serve.server.max_images is {images}, an episode has up to {turns} (train.data.max_turns); raise it"
            )
        return self

    @model_validator(mode="after")
    def _pods_have_images(self) -> RetrainSettings:
        if not isinstance(self.hosting, HyperPodSettings):
            return self
        built = getattr(self.image, "images", {})
        pinned = {"train": self.hosting.train_image, "serve": self.hosting.serve_image}
        if lacking := [name for name, uri in pinned.items() if not uri and name not in built]:
            raise ValueError(
                f"nothing says which image the pods take for {', '.join(lacking)}: build it (image.images) or pin it "
                "by digest (hosting.train_image, hosting.serve_image)"
            )
        return self

    @model_validator(mode="after")
    def _cluster_fits(self) -> RetrainSettings:
        train = self.train
        policy = train.num_policy_nodes * train.num_gpus_per_node
        wanted = policy if train.engine.colocate else policy + train.engine.num_engines
        if self.cluster.num_gpus != wanted:
            raise ValueError(
                f"cluster.num_gpus is {self.cluster.num_gpus:g}, train needs {wanted} (policy {policy}"
                + ("" if train.engine.colocate else f" + engines {train.engine.num_engines}")
                + ")"
            )
        return self


class PlanFlowSettings(Settings):
    """Everything the plan flow needs."""

    run: RetrainSettings
    """The run that is planned."""
    plan: PlanSettings

    @property
    def hyperpod(self) -> HyperPodSettings:
        """The clusters that are planned."""
        assert isinstance(self.run.hosting, HyperPodSettings)
        return self.run.hosting

    @model_validator(mode="after")
    def _has_a_cluster_to_plan(self) -> PlanFlowSettings:
        if not isinstance(self.run.hosting, HyperPodSettings):
            raise ValueError("run.hosting.kind is kept: there is nothing to plan; plan a run on hyperpod")
        return self


class ClusterUpSettings(Settings):
    """Everything the cluster-up flow needs."""

    hosting: HyperPodSettings
    readiness: ReadinessSettings
    run_name: str = Field(default="by-hand", pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """Label of what is created; clean-up asks for it."""


class CleanupFlowSettings(CleanupScope):
    """Everything the cleanup flow needs."""

    run_name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """The run whose remains are looked for."""
    dry_run: bool = True
    """Only say what would be removed."""


class BaseModelFlowSettings(Settings):
    """Everything the base-model flow needs."""

    cluster: ClusterSettings
    job: JobSettings
    tracking: TrackingSettings
    model: BaseModelSettings


class EvaluateSettings(Settings):
    """Everything the evaluate flow needs."""

    url: str
    """Address of the endpoint, before ``/v1``."""
    model_id: str
    """What to ask for: a base model, ``<base>:<adapter>`` or ``<base>:champion``."""
    data: DataSettings
    play: PlaySettings
    tracking: TrackingSettings


class RollbackSettings(Settings):
    """Everything the rollback flow needs."""

    server: ServerSettings
    tracking: TrackingSettings


class PromoteSettings(RollbackSettings):
    """Everything the promote flow needs."""

    adapter_name: str
    """Name of a registered adapter, without the base model's; an unknown one is answered with those that there are."""
