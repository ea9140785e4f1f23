"""How the agent is trained: data, adapter, engine, algorithm."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rl.settings import DataSettings, Settings, differences


class LoraSettings(Settings):
    """The adapter that is trained."""

    rank: int = Field(default=32, ge=1)
    """Rank of every adapted matrix."""
    alpha: int = Field(default=32, ge=1)
    """Scale of the update is alpha / rank."""
    target_modules: str = "all-linear"
    """Linear layers to adapt."""
    exclude_modules: str = r".*visual.*"
    """Regular expression of modules left alone: vLLM applies adapters to the language model only."""


class EngineSettings(Settings):
    """The vLLM engines that play the rollouts."""

    device: Literal["cpu", "cuda"]
    """Where policy and engines run; checked against what the cluster has."""
    num_engines: int = Field(default=1, ge=1)
    """Engines, one GPU (or logical GPU) each."""
    colocate: bool
    """Engines and policy share their GPUs and take turns (sleep mode, which a CPU does not have)."""
    gpu_memory_utilization: float = Field(default=0.45, gt=0, le=1)
    """Share of a GPU that one engine may take."""
    dtype: Literal["float32", "bfloat16"]
    """Number format of the engine's weights."""
    enforce_eager: bool
    """No graph capture."""
    max_model_len: int = Field(ge=256)
    """Longest episode, in tokens."""
    px_per_image_token: int = Field(default=32, ge=1)
    """Side of the square that becomes one token, in pixels: a patch times how many are merged (Qwen3-VL: 32)."""
    max_num_seqs: int = Field(default=64, ge=1)
    """Episodes that one engine generates for at a time."""
    max_num_batched_tokens: int = Field(default=8192, ge=256)
    """Tokens in one scheduler step."""
    picture_cache_gb: float = Field(default=4.0, gt=0)
    """Pictures that an engine keeps, in GB, so that each is sent once: those of the episodes it plays at a time."""
    max_lora_rank: int = Field(default=32, ge=1)
    """Largest adapter rank that serving accepts."""
    env: dict[str, str] = Field(default={})
    """Environment of the engine processes, for example VLLM_CPU_KVCACHE_SPACE."""
    init_kwargs: dict[str, int | float | str | bool | dict[str, int] | list[str]] = Field(default={})
    """Further vLLM engine arguments, handed on as they are."""


class GrpoSettings(Settings):
    """One GRPO run."""

    max_steps: int = Field(ge=1)
    """Training steps; each samples, updates and syncs once."""
    mazes_per_step: int = Field(ge=1)
    """Prompts in one batch (P)."""
    mini_batch_mazes: int = Field(ge=1)
    """Prompts per optimiser step; divides mazes_per_step."""
    rollouts_per_maze: int = Field(default=8, ge=2)
    """Rollouts of one maze, whose rewards are centred against each other (G)."""
    learning_rate: float = Field(gt=0)
    """AdamW's largest, after warm-up."""
    learning_rate_schedule: Literal["constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"
    """After warm-up: constant, or down to zero at max_steps (transformers.SchedulerType)."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps of linear warm-up."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of training rollouts; evaluation is greedy."""
    max_reply_tokens: int = Field(default=16, ge=4)
    """Tokens of one reply."""
    policy_loss: Literal["regular", "dual_clip", "gspo", "cispo"] = "regular"
    """SkyRL's policy loss."""
    loss_reduction: Literal["token_mean", "token_mean_legacy", "sequence_mean", "seq_mean_token_sum_norm"] = (
        "token_mean"
    )
    """How token losses become one number."""
    clip_low: float = Field(default=0.2, gt=0)
    """Lower clipping range of the importance ratio."""
    clip_high: float = Field(default=0.28, gt=0)
    """Upper clipping range of the importance ratio (DAPO's clip-higher)."""
    kl_loss_coef: float = Field(default=0.0, ge=0)
    """Weight of the KL term against the base; 0 builds no reference model."""
    update_epochs: int = Field(default=1, ge=1)
    """Passes over one batch of rollouts."""
    micro_batch_size: int = Field(default=8, ge=1)
    """Sequences of one forward and backward pass, per GPU."""
    gradient_checkpointing: bool = False
    """Recompute activations to save memory."""
    seed: int = 0
    """Seeds policy, data order and engine."""


class TrainSettings(Settings):
    """Everything the GRPO job needs; written to JSON, passed to the job, and validated again there."""

    model_path: str
    """Folder of the base model with its processor, as the job's nodes see it."""
    shared_dir: str
    """Folder that every node sees (FSx for Lustre on the cluster); runs live in ``runs/<run_name>``."""
    data: DataSettings
    lora: LoraSettings
    engine: EngineSettings
    grpo: GrpoSettings
    eval_interval: int = Field(default=10, ge=1)
    """Evaluate every so many steps, before training and after the last step (SkyRL's rule)."""
    export_interval: int = Field(default=20, ge=1)
    """Full checkpoint and HF LoRA export every so many steps, and after the last step (SkyRL's rule): so at least one
    step has both an evaluation and an export, whatever the intervals are."""
    max_checkpoints_to_keep: int = -1
    """Newest checkpoints kept; -1 keeps all."""
    restart: bool = False
    """Start again from the base model where this run has checkpoints and none of them is whole; refused otherwise."""
    num_policy_nodes: int = Field(default=1, ge=1)
    """Nodes of the policy."""
    num_gpus_per_node: int = Field(default=1, ge=1)
    """GPUs (or logical GPUs) of the policy per node."""
    num_policy_threads: int = Field(default=0, ge=0)
    """Threads of the policy's operations where it trains on CPUs; 0 leaves them as OMP_NUM_THREADS in engine.env says,
    which every other process takes."""
    min_free_disk_gb: float = Field(default=2.0, ge=0)
    """Refuse to start with less free space than this in shared_dir, in GB (10^9 bytes)."""

    @property
    def num_policy_gpus(self) -> int:
        """Ranks of the policy."""
        return self.num_policy_nodes * self.num_gpus_per_node

    @property
    def num_gpus(self) -> int:
        """GPUs (or logical GPUs) of policy and engines; colocated engines share the policy's."""
        return self.num_policy_gpus + (0 if self.engine.colocate else self.engine.num_engines)

    @property
    def min_episode_tokens(self) -> int:
        """What a whole episode takes at least: a picture and a reply each turn, no text counted."""
        maze, side_px = self.data.maze, self.engine.px_per_image_token
        picture = round(maze.height * maze.cell_px / side_px) * round(maze.width * maze.cell_px / side_px)
        return self.data.max_turns * (self.grpo.max_reply_tokens + picture)

    @model_validator(mode="after")
    def _holds_an_episode(self) -> TrainSettings:
        if self.engine.max_model_len < self.min_episode_tokens:
            raise ValueError(
                f"engine.max_model_len is {self.engine.max_model_len}, {self.data.max_turns} turns of a picture and "
                f"{self.grpo.max_reply_tokens} reply tokens take {self.min_episode_tokens} and their text besides; "
                "raise it, or lower data.max_turns or grpo.max_reply_tokens"
            )
        return self

    @model_validator(mode="after")
    def _consistent(self) -> TrainSettings:
        if self.lora.rank > self.engine.max_lora_rank:
            raise ValueError(
                f"lora.rank is {self.lora.rank}, the engine serves at most engine.max_lora_rank "
                f"{self.engine.max_lora_rank}; lower the one or raise the other"
            )
        if self.grpo.mazes_per_step % self.grpo.mini_batch_mazes:
            raise ValueError(
                f"grpo.mazes_per_step {self.grpo.mazes_per_step} must be a multiple of grpo.mini_batch_mazes "
                f"{self.grpo.mini_batch_mazes}"
            )
        if self.data.num_train_mazes < self.grpo.mazes_per_step:
            raise ValueError(
                f"data.num_train_mazes {self.data.num_train_mazes} is less than one step's {self.grpo.mazes_per_step}"
            )
        if self.engine.device == "cpu" and self.engine.colocate:
            raise ValueError("engine.colocate needs sleep mode, which vLLM has on GPUs only; set it to false on cpu")
        return self


class TrainJob(Settings):
    """What the job's command line carries."""

    run_name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """Names the run everywhere: folder, Ray job, MLflow, adapter."""
    train: TrainSettings
    train_mazes_sha256: str
    """Digest over the training mazes that the orchestrator prepared; the job draws the same."""

    def adds_steps_to(self, before: str) -> int:
        """Steps that this job trains beyond an earlier one of its run, given as JSON; 0 where it is the same training.

        Raises ValueError with all that differs otherwise: what the earlier one trained would be passed off as this.
        """
        earlier = TrainJob.model_validate_json(before)
        more_steps = self.train.grpo.max_steps - earlier.train.grpo.max_steps
        changed = differences(earlier.model_dump(mode="json"), self.model_dump(mode="json"))
        # It says what to do where checkpoints are broken, not what is trained.
        changed.pop("train.restart", None)
        if more_steps > 0:
            changed.pop("train.grpo.max_steps")
        if changed:
            told = "; ".join(f"{name} is {now}, was {then}" for name, (then, now) in changed.items())
            raise ValueError(
                f"run {self.run_name} was trained with other settings: {told}. Set them back (only "
                "train.grpo.max_steps may grow), or give this run another run_name"
            )
        return more_steps
