"""Stage: the best step's adapter goes to S3, from where it was trained, with the job's own identity."""

from __future__ import annotations

import boto3
from prefect import get_run_logger, task

from serving.app import adapter_model_id
from serving.publish import AdapterStore, PublishJob
from serving.settings import ServerSettings
from tasks.clients.mlflow_runs import MlflowRuns
from tasks.errors import NothingToExport
from tasks.evidence.sinks import PrefectSinks
from tasks.jobs.ray_jobs import RayJobs
from tasks.jobs.submit import entrypoint, followed_to_its_end, submit_once
from tasks.records import BestStep, ClusterRef, PublishedAdapter, TrackedRun
from tasks.settings import JobSettings, TrackingSettings


@task
def publish_adapter(
    server: ServerSettings,
    job: JobSettings,
    tracking: TrackingSettings,
    run_name: str,
    base_dir: str,
    best: BestStep,
    cluster: ClusterRef,
    tracked: TrackedRun,
) -> PublishedAdapter:
    """Check and upload as a Ray job named after run and step; a second call finds the first one's adapter."""
    order = publish_job(server, run_name, base_dir, best, tracked)
    jobs = RayJobs(cluster.jobs_address)
    mlflow = MlflowRuns(tracking.tracking_uri, tracking.experiment)
    name = f"{run_name}-publish-{best.export.step}"
    submission_id = submit_once(jobs, name, entrypoint(job, "serving.publish", order.model_dump_json()))
    sinks = PrefectSinks(get_run_logger(), mlflow, tracked.child_run_id, run_name)
    followed_to_its_end(jobs, submission_id, sinks, job)
    store = AdapterStore(boto3.client("s3"), server.adapters_uri, order.adapter_name)
    manifest = store.manifest()
    if manifest is None:
        raise NothingToExport(f"{store.uri} has no manifest although {submission_id} succeeded; was it deleted?")
    mlflow.log_text(tracked.parent_run_id, manifest.model_dump_json(indent=1), "adapter_manifest.json")
    return PublishedAdapter(
        name=order.adapter_name,
        uri=store.uri,
        sha256=manifest.adapter_sha256,
        step=manifest.step,
        model_id=adapter_model_id(server, order.adapter_name),
    )


def publish_job(
    server: ServerSettings, run_name: str, base_dir: str, best: BestStep, tracked: TrackedRun
) -> PublishJob:
    """The adapter's immutable name says run and step."""
    return PublishJob(
        adapter_dir=best.export.path,
        base_dir=base_dir,
        adapters_uri=server.adapters_uri,
        adapter_name=f"{run_name}-step-{best.export.step}",
        max_lora_rank=server.max_lora_rank,
        serves_tower_lora=False,
        run_name=run_name,
        step=best.export.step,
        num_solved=best.best.num_solved,
        num_mazes=best.best.num_mazes,
        eval_set_sha256=best.best.eval_set_sha256,
        mlflow_run_id=tracked.child_run_id,
    )
