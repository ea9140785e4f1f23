"""From the mazes and the cluster to the best step of a training."""

from __future__ import annotations

from pydantic import Field

from rl.events import Rollouts
from rl.maze.score import EvalReport
from tasks.records.base import Record
from tasks.settings import JobSettings


class MazesRef(Record):
    """The mazes of one run."""

    height: int
    width: int
    """In cells, as ``height`` is."""
    eval_sha256: str
    num_eval_mazes: int
    ceiling: int
    """Evaluation mazes that can be solved at all within the turn limit."""
    train_sha256: str
    num_train_mazes: int
    train_ceiling: int

    def in_words(self) -> str:
        return (
            f"{self.num_train_mazes} mazes to train on, {self.num_eval_mazes} to evaluate on "
            f"({self.ceiling} of them can be solved)"
        )


class ClusterRef(Record):
    """A cluster that was ready."""

    jobs_address: str
    ray_version: str
    num_gpus: float
    job: JobSettings
    """How jobs run there."""
    own_job: str = ""
    """This run's training job, where it goes on there already and holds the GPUs."""

    def in_words(self) -> str:
        return f"Ray {self.ray_version}, {self.num_gpus:g} GPUs" + (f", {self.own_job} goes on" if self.own_job else "")


class ImageRef(Record):
    """What processes of a run run in."""

    uri: str
    """``<host>/<repository>@sha256:<64 hex digits>``; path of the lock where the environment is installed."""
    sha256: str
    """Of the image's manifest, or of the lock."""
    content: str = ""
    """Tag made of all that went into the image; empty for a lock."""
    built: bool = False
    """Whether this run had to build it."""


class ExportRef(Record):
    """A LoRA export on the cluster's shared file system."""

    step: int
    path: str
    sha256: dict[str, str]


class DiedJob(Record):
    """A training job that died and was followed by another one."""

    submission_id: str
    step: int
    """The last one that it told of."""
    held_step: int
    """The newest that a checkpoint held."""
    cause: str
    """In one line."""

    def in_words(self) -> str:
        return f"{self.submission_id} died at step {self.step}: {self.cause}"


class TrainedRun(Record):
    """What a finished training job said about itself."""

    run_name: str
    submission_id: str
    attempt: int
    """Number of the attempt at training that told all this, from 1."""
    mazes: MazesRef
    model_path: str
    """Folder of the base model, as the cluster's nodes see it."""
    dtype: str
    """In which it was trained: float32 or bfloat16."""
    resumed_from_step: int
    last_step: int
    evaluations: tuple[EvalReport, ...]
    """Ascending by step; one per step."""
    exports: tuple[ExportRef, ...]
    checkpoint_steps: tuple[int, ...]
    numbers: dict[int, dict[str, float]] = Field(default_factory=dict)
    """Step -> its reward and what its time went into, as SkyRL names them; what the pictures show."""
    rollouts: tuple[Rollouts, ...] = ()
    """Some episodes of training, ascending by step."""
    died: tuple[DiedJob, ...] = ()
    """Jobs before ``submission_id`` that died while this was trained, the first one first."""

    def in_words(self) -> str:
        last = self.evaluations[-1] if self.evaluations else None
        solves = f", the last evaluation solved {last.num_solved} of {last.num_mazes}" if last else ""
        died = f"; {len(self.died)} of its jobs died" if self.died else ""
        return f"{self.last_step} steps{solves}{died}"


class BestStep(Record):
    """The step to serve: the best among those with an evaluation and an export."""

    run: TrainedRun
    base: EvalReport
    best: EvalReport
    export: ExportRef

    def in_words(self) -> str:
        solved = f"{self.best.num_solved} of {self.best.num_mazes}"
        return f"step {self.best.step} solved {solved}, the base {self.base.num_solved}"
