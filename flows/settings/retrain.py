"""Settings of the retrain flow, one field per stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import model_validator

from flows.parts import InParts, PlatformOf
from rl.grpo.settings import TrainSettings
from rl.proof.settings import Questions
from tasks.cleanup.settings import CleanupScope, CleanupSettings
from tasks.cluster.ray_settings import RayOnKubernetes
from tasks.cluster.settings import ClusterSettings, HostingSettings
from tasks.evidence.settings import ReportSettings
from tasks.image.settings import ImageSettings
from tasks.names import RunNameOrEmpty, is_run_name
from tasks.readiness.settings import ReadinessSettings, RunNeeds
from tasks.records import ImageRef
from tasks.release.settings import (
    ChampionSettings,
    EvaluationSettings,
    GateSettings,
    JudgeMazesSettings,
    JudgeSettings,
    PlaySettings,
    ProofSettings,
    ServeSettings,
)
from tasks.settings import JobSettings, TrackingSettings, dotted


class RetrainSettings(InParts):
    """Everything the retrain flow needs."""

    knob_paths: ClassVar[Mapping[str, str]] = {
        "run_name": "run_name",
        "max_steps": "train.grpo.max_steps",
        "mazes_per_step": "train.grpo.mazes_per_step",
        "rollouts_per_maze": "train.grpo.rollouts_per_maze",
        "learning_rate": "train.grpo.learning_rate",
        "temperature": "train.grpo.temperature",
        "eval_interval": "train.eval_interval",
        "export_interval": "train.export_interval",
        "seed": "train.grpo.seed",
        "promote": "gate.promote",
        "note": "report.note",
    }
    knob_bounds: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "mazes_per_step": {"multipleOf": "train.grpo.mini_batch_mazes", "maximum": "train.data.num_train_mazes"},
    }

    run_name: RunNameOrEmpty = ""
    """Names the run everywhere; empty takes the profile, the start time and a part of the flow run's id. An old name
    goes on with that run."""
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
    judge: JudgeSettings
    gate: GateSettings
    report: ReportSettings
    cleanup: CleanupSettings
    """What is taken away when the run ends, however it ends."""

    def of_run(self, run_name: str) -> Self:
        """The same, with what follows from the run's name: which mazes it trains on."""
        data = self.train.data.of_run(run_name)
        return self.model_copy(update={"train": self.train.model_copy(update={"data": data})})

    @property
    def questions(self) -> Questions:
        """What the served adapter is asked, and the trained one before it."""
        return Questions(
            maze=self.train.data.maze,
            num_probes=self.proof.num_probes,
            max_reply_tokens=self.play.max_reply_tokens,
        )

    def evaluation(self, images: Mapping[str, ImageRef]) -> EvaluationSettings:
        """How mazes are played through the endpoint: by the rules of training, and in what."""
        found = images.get("serve") or images.get("serve-lock")
        software = found.sha256 if found else getattr(self.hosting, "serve_image", "")
        return EvaluationSettings(data=self.train.data, play=self.play, server=self.serve.server, software=software)

    @property
    def judge_mazes(self) -> JudgeMazesSettings:
        """How many judge mazes, drawn around the run's others."""
        return JudgeMazesSettings(data=self.train.data, num_mazes=self.judge.num_mazes)

    def params(self, run_name: str) -> dict[str, Any]:
        """What MLflow keeps: knobs, and what follows from them, by bare names; every other setting by its path."""
        train, settings = self.train, dotted(self.model_dump(mode="json"))
        knobs = {name: settings.pop(path) for name, path in self.knob_paths.items()}
        resolved = {
            "run_name": run_name,
            "profile": self.report.profile,
            "base_model": self.serve.server.base_model_id,
            "device": train.engine.device,
            "dtype": train.engine.dtype,
            "num_gpus": train.num_gpus,
            "lora_rank": train.lora.rank,
            "rollouts_per_step": train.grpo.mazes_per_step * train.grpo.rollouts_per_maze,
            "updates_per_step": train.grpo.update_epochs * train.grpo.mazes_per_step // train.grpo.mini_batch_mazes,
            "num_train_mazes": train.data.num_train_mazes,
            "max_turns": train.data.max_turns,
            "usd_per_h": self.hosting.usd_per_h,
        }
        return {**settings, **knobs, **resolved}

    @property
    def description(self) -> str:
        """The run in a few sentences."""
        train, grpo, maze = self.train, self.train.grpo, self.train.data.maze
        return (
            f"{self.report.note}\n\n"
            * bool(self.report.note)
            + f"GRPO on {self.serve.server.base_model_id} with a LoRA adapter of rank {train.lora.rank}: "
            f"{grpo.max_steps} steps of {grpo.mazes_per_step} mazes, each played {grpo.rollouts_per_maze} times, at a "
            f"learning rate of {grpo.learning_rate:g}. Mazes have {maze.height}x{maze.width} cells, an episode at most "
            f"{train.data.max_turns} turns. The mazes of {train.data.eval_manifest} are played every "
            f"{train.eval_interval} steps. Profile {self.report.profile}."
        )

    @property
    def links(self) -> dict[str, str]:
        """Where a run is looked at, besides MLflow."""
        return {
            "Ray dashboard (training)": self.cluster.jobs_address,
            "Ray dashboard (serving)": self.serve.dashboard,
            "Endpoint": self.serve.url,
        }

    @property
    def champions(self) -> ChampionSettings:
        """Whose champion it is, and who records that."""
        return ChampionSettings(server=self.serve.server, tracking=self.tracking)

    @property
    def needs(self) -> RunNeeds:
        """What readiness asks for."""
        train = self.train
        return RunNeeds(
            hosting=self.hosting,
            serve_dashboard=self.serve.dashboard,
            serve_listen=self.serve.server.listen,
            adapters_uri=self.serve.server.adapters_uri,
            tracking_uri=self.tracking.tracking_uri,
            experiment=self.tracking.experiment,
            device=train.engine.device,
            num_gpus=train.num_gpus,
            num_policy_nodes=train.num_policy_nodes,
            num_gpus_per_node=train.num_gpus_per_node,
            env=train.engine.env,
            shared_dir=train.shared_dir,
            min_free_disk_gb=train.min_free_disk_gb,
            model_path=train.model_path,
        )

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
    def _its_default_name_is_one(self) -> RetrainSettings:
        try:
            is_run_name(f"{self.report.profile}-20260101-000000-00000000")
        except ValueError as error:
            raise ValueError(f"report.profile begins the default name of a run: {error}") from None
        return self

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
        served, played = self.serve.server.max_model_len, self.train.engine.max_model_len
        if served < played:
            raise ValueError(
                f"serve.server.max_model_len is {served}, train.engine.max_model_len {played}: the endpoint would "
                "refuse episodes that training plays to their end; raise the one or lower the other"
            )
        images, turns = self.serve.server.max_images, self.train.data.max_turns
        if images < turns:
            raise ValueError(
                f"serve.server.max_images is {images}, an episode has up to {turns} (train.data.max_turns); raise it"
            )
        return self

    @model_validator(mode="after")
    def _pods_have_images(self) -> RetrainSettings:
        if not isinstance(self.hosting, RayOnKubernetes):
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
        engines = "" if train.engine.colocate else f" + engines {train.engine.num_engines}"
        if self.cluster.num_gpus != train.num_gpus:
            raise ValueError(
                f"cluster.num_gpus is {self.cluster.num_gpus:g}, train needs {train.num_gpus} "
                f"(policy {train.num_policy_gpus}{engines})"
            )
        return self


RetrainPlatform = Annotated[dict[str, Any], PlatformOf(RetrainSettings)]
