"""Stage: the base model's fine-tuning as a Ray job, with the same progress and metrics as training."""

from __future__ import annotations

from rl.base_model.settings import BaseModelSettings
from tasks.jobs.run_job import run_job
from tasks.records import ClusterRef
from tasks.run import RunContext
from tasks.stage import stage


@stage
def fine_tune_base_model(context: RunContext, settings: BaseModelSettings, cluster: ClusterRef) -> str:
    """Submit ``rl.base_model.sft``, follow it, return the model's folder."""
    run_job(context, cluster, "sft", "rl.base_model.sft", settings)
    return settings.output_dir
