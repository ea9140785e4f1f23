"""Stage: the best step's adapter goes to S3, from where it was trained, with the job's own identity."""

from __future__ import annotations

from serving.app import adapter_model_id
from serving.publish import AdapterStore, PublishJob
from serving.settings import ServerSettings
from serving.store import s3_client
from tasks.errors import NothingToExport
from tasks.jobs.run_job import run_job
from tasks.records import BestStep, ClusterRef, PublishedAdapter
from tasks.run import RunContext
from tasks.stage import stage


@stage
def publish_adapter(
    context: RunContext, server: ServerSettings, best: BestStep, cluster: ClusterRef
) -> PublishedAdapter:
    """Check and upload as a Ray job named after run and step; a second call finds the first one's adapter."""
    order = publish_job(server, best, context.run.run_id)
    job = run_job(context, cluster, f"publish-{order.step}", "serving.publish", order)
    store = AdapterStore(s3_client(), server.adapters_uri, order.adapter_name)
    manifest = store.manifest()
    if manifest is None:
        raise NothingToExport(f"{store.uri} has no manifest although {job.submission_id} succeeded; was it deleted?")
    context.run.text(manifest.model_dump_json(indent=1), "adapter_manifest.json")
    return PublishedAdapter(
        name=order.adapter_name,
        uri=store.uri,
        sha256=manifest.adapter_sha256,
        step=manifest.step,
        model_id=adapter_model_id(server, order.adapter_name),
    )


def publish_job(server: ServerSettings, best: BestStep, mlflow_run_id: str) -> PublishJob:
    """The adapter's immutable name says run and step."""
    run_name, step = best.run.run_name, best.export.step
    return PublishJob(
        adapter_dir=best.export.path,
        base_dir=best.run.model_path,
        adapters_uri=server.adapters_uri,
        adapter_name=f"{run_name}-step-{step}",
        max_lora_rank=server.max_lora_rank,
        serves_tower_lora=False,
        run_name=run_name,
        step=step,
        num_solved=best.best.num_solved,
        num_mazes=best.best.num_mazes,
        eval_set_sha256=best.best.rules.eval_set_sha256,
        mlflow_run_id=mlflow_run_id,
        export_sha256=best.export.sha256,
    )
