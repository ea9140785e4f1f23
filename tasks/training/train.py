"""Stage: GRPO as a Ray job, followed to its end. Training is a process, never an import."""

from __future__ import annotations

from rl.grpo.settings import TrainJob, TrainSettings
from tasks.jobs.follow import JobStory
from tasks.jobs.run_job import run_job
from tasks.records import ClusterRef, MazesRef, TrainedRun
from tasks.run import RunContext
from tasks.stage import stage


@stage
def run_training(context: RunContext, settings: TrainSettings, mazes: MazesRef, cluster: ClusterRef) -> TrainedRun:
    """Submit the job (or take up the one of this name), follow it, return what it made.

    Raises TrainingJobFailed or TrainingStalled. A flow that is cancelled stops the job.
    """
    order = TrainJob(run_name=context.run_name, train=settings, train_mazes_sha256=mazes.train_sha256)
    context.training.text(order.model_dump_json(indent=1), "train_job.json")
    return trained_run(order, mazes, run_job(context, cluster, "train", "rl.grpo.job", order))


def trained_run(order: TrainJob, mazes: MazesRef, story: JobStory) -> TrainedRun:
    """The record of a finished job."""
    return TrainedRun(
        run_name=order.run_name,
        submission_id=story.submission_id,
        mazes=mazes,
        model_path=order.train.model_path,
        dtype=order.train.engine.dtype,
        resumed_from_step=story.resumed_from_step,
        last_step=story.last_step,
        evaluations=tuple(story.evaluations[step] for step in sorted(story.evaluations)),
        exports=tuple(story.exports[step] for step in sorted(story.exports)),
        checkpoint_steps=tuple(sorted(story.checkpoint_steps)),
    )
