"""Stages: what is to be trained, and GRPO as a Ray job, followed to its end. Training is a process, never an import."""

from __future__ import annotations

from collections.abc import Sequence

from rl.grpo.settings import TrainJob, TrainSettings
from tasks.errors import OtherSettings
from tasks.jobs.news import ORDER
from tasks.jobs.run_job import run_job
from tasks.jobs.story import JobStory
from tasks.records import ClusterRef, DiedJob, MazesRef, TrainedRun
from tasks.run import RunContext
from tasks.stage import stage
from tasks.training.attempts import AttemptLimits, to_the_end
from tasks.training.figures import CURVES
from tasks.training.news import TrainingNews
from tasks.training.rollouts import spread


@stage
def order_training(context: RunContext, settings: TrainSettings, mazes: MazesRef) -> TrainJob:
    """What the training job is asked. A run that has checkpoints goes on with the same settings, or longer.

    Raises OtherSettings with what differs.
    """
    order = TrainJob(run_name=context.run_name, train=settings, train_mazes_sha256=mazes.train_sha256)
    before = context.run.read(ORDER)
    if before is not None:
        takes_up(before, order.model_dump_json())
    return order


@stage
def run_training(context: RunContext, order: TrainJob, mazes: MazesRef, cluster: ClusterRef) -> TrainedRun:
    """Submit the job (or take up the one of this name), follow it, return what it made. One that died is followed by
    another, as often as ``cluster.job`` allows (attempts.py).

    Raises TrainingJobFailed, TrainingStalled or OtherSettings. A flow that is cancelled stops the job.
    """

    def one_job(story: JobStory) -> None:
        run_job(context, cluster, "train", "rl.grpo.job", order, takes_up, TrainingNews, story)

    limits = AttemptLimits(cluster.job.max_training_attempts, after_stall=cluster.job.on_stall == "resubmit")
    story, died = to_the_end(context, limits, one_job)
    return trained_run(order, mazes, story, died)


def takes_up(before: str, now: str) -> bool:
    """Whether an earlier training is all that is wanted now; False where it goes on to more steps.

    Raises OtherSettings where it is another training.
    """
    wanted = TrainJob.model_validate_json(now)
    try:
        return wanted.adds_steps_to(before) == 0
    except ValueError as error:
        raise OtherSettings(str(error)) from error


def trained_run(order: TrainJob, mazes: MazesRef, story: JobStory, died: Sequence[DiedJob] = ()) -> TrainedRun:
    """The record of a finished job, and of those that died before it."""
    return TrainedRun(
        run_name=order.run_name,
        submission_id=story.submission_id,
        attempt=story.attempt,
        mazes=mazes,
        model_path=order.train.model_path,
        dtype=order.train.engine.dtype,
        resumed_from_step=story.resumed_from_step,
        last_step=story.last_step,
        evaluations=tuple(story.evaluations[step] for step in sorted(story.evaluations)),
        exports=tuple(story.exports[step] for step in sorted(story.exports)),
        checkpoint_steps=tuple(sorted(story.checkpoint_steps)),
        rollouts=tuple(story.rollouts[step] for step in spread(story.rollouts)),
        numbers={
            step: {name: story.numbers[step][name] for name in CURVES if name in story.numbers[step]}
            for step in sorted(story.numbers)
        },
        died=tuple(died),
    )
