"""The base-model flow: build the tiny Qwen3-VL and fine-tune it on oracle walks, followed like any training job.

Needs a Prefect API, MLflow (platform.tracking) and a Ray cluster (platform.cluster).
"""

from __future__ import annotations

from prefect import flow

from flows.names import default_name
from flows.settings.base_model import BaseModelFlowSettings, BaseModelPlatform
from tasks.cluster.wait import ensure_cluster
from tasks.evidence.tracking import tracked_run
from tasks.training.base_model import fine_tune_base_model


@flow(name="base-model", retries=0)
def base_model(platform: BaseModelPlatform) -> str:
    """Make the model in ``platform.model.output_dir`` and return that folder."""
    settings = BaseModelFlowSettings.of(platform)
    run_name = default_name("base-model")
    with tracked_run(settings.tracking, run_name, settings.model_dump(mode="json")) as context:
        cluster = ensure_cluster(context, settings.cluster, settings.job)
        return fine_tune_base_model(context, settings.model, cluster)
