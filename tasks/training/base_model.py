"""Stage: the base model's fine-tuning as a Ray job, with the same progress and metrics as training."""

from __future__ import annotations

from prefect import get_run_logger, task

from rl.settings import BaseModelSettings
from tasks.clients.mlflow_runs import MlflowRuns
from tasks.evidence.sinks import PrefectSinks
from tasks.jobs.ray_jobs import RayJobs
from tasks.jobs.submit import entrypoint, followed_to_its_end, submit_once
from tasks.records import ClusterRef, TrackedRun
from tasks.settings import JobSettings, TrackingSettings


@task
def fine_tune_base_model(
    settings: BaseModelSettings,
    job: JobSettings,
    tracking: TrackingSettings,
    run_name: str,
    cluster: ClusterRef,
    tracked: TrackedRun,
) -> str:
    """Submit ``rl.base_model.sft``, follow it, return the model's folder."""
    jobs = RayJobs(cluster.jobs_address)
    mlflow = MlflowRuns(tracking.tracking_uri, tracking.experiment)
    submission_id = submit_once(jobs, run_name, entrypoint(job, "rl.base_model.sft", settings.model_dump_json()))
    sinks = PrefectSinks(get_run_logger(), mlflow, tracked.child_run_id, run_name)
    followed_to_its_end(jobs, submission_id, sinks, job)
    return settings.output_dir
