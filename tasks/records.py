"""What stages hand to each other: digests, steps, URIs and counts. Never a tag, never a live object."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from rl.score import EvalReport


class Record(BaseModel):
    """Frozen and strict."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class MazesRef(Record):
    """The mazes of one run."""

    eval_sha256: str
    num_eval_mazes: int
    ceiling: int
    """Evaluation mazes that can be solved at all within the turn limit."""
    train_sha256: str
    num_train_mazes: int
    train_ceiling: int


class ClusterRef(Record):
    """A cluster that was ready."""

    jobs_address: str
    ray_version: str
    num_gpus: float


class TrackedRun(Record):
    """Parent and child run in MLflow."""

    experiment_id: str
    parent_run_id: str
    child_run_id: str
    url: str


class ExportRef(Record):
    """A LoRA export on the cluster's shared file system."""

    step: int
    path: str
    sha256: dict[str, str]


class TrainedRun(Record):
    """What a finished training job said about itself."""

    run_name: str
    submission_id: str
    resumed_from_step: int
    last_step: int
    evaluations: tuple[EvalReport, ...]
    """Ascending by step; one per step."""
    exports: tuple[ExportRef, ...]
    checkpoint_steps: tuple[int, ...]


class BestStep(Record):
    """The step to serve: the best among those with an evaluation and an export."""

    base: EvalReport
    best: EvalReport
    export: ExportRef
