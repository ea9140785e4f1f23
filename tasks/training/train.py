"""Stage: GRPO as a Ray job, followed to its end. Training is a process, never an import."""

from __future__ import annotations

from prefect import get_run_logger, task

from rl.settings import TrainJob, TrainSettings
from tasks.clients.mlflow_runs import MlflowRuns
from tasks.evidence.sinks import PrefectSinks
from tasks.jobs.follow import JobStory
from tasks.jobs.ray_jobs import RayJobs
from tasks.jobs.submit import entrypoint, followed_to_its_end, submit_once
from tasks.records import ClusterRef, MazesRef, TrackedRun, TrainedRun
from tasks.settings import JobSettings, TrackingSettings


@task
def run_training(
    settings: TrainSettings,
    job: JobSettings,
    tracking: TrackingSettings,
    run_name: str,
    mazes: MazesRef,
    cluster: ClusterRef,
    tracked: TrackedRun,
) -> TrainedRun:
    """Submit the job (or take up the one of this name), follow it, return what it made.

    Raises TrainingJobFailed or TrainingStalled. A flow that is cancelled stops the job.
    """
    logger = get_run_logger()
    jobs = RayJobs(cluster.jobs_address)
    train_job = TrainJob(run_name=run_name, train=settings, train_mazes_sha256=mazes.train_sha256)
    mlflow = MlflowRuns(tracking.tracking_uri, tracking.experiment)
    mlflow.log_text(tracked.child_run_id, train_job.model_dump_json(indent=1), "train_job.json")
    submission_id = submit_once(jobs, f"{run_name}-train", entrypoint(job, "rl.grpo.job", train_job.model_dump_json()))
    logger.info("following Ray job %s", submission_id)
    mlflow.set_tags(tracked.child_run_id, {"ray.submission_id": submission_id})
    story = followed_to_its_end(jobs, submission_id, PrefectSinks(logger, mlflow, tracked.child_run_id, run_name), job)
    return trained_run(run_name, submission_id, story)


def trained_run(run_name: str, submission_id: str, story: JobStory) -> TrainedRun:
    """The record of a finished job."""
    return TrainedRun(
        run_name=run_name,
        submission_id=submission_id,
        resumed_from_step=story.resumed_from_step,
        last_step=story.last_step,
        evaluations=tuple(story.evaluations[step] for step in sorted(story.evaluations)),
        exports=tuple(story.exports[step] for step in sorted(story.exports)),
        checkpoint_steps=tuple(sorted(story.checkpoint_steps)),
    )
