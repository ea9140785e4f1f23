"""What MLflow keeps of a run beside figures and files: its datasets, its tables, the adapters that it made.

Each may be told again: MLflow is asked first what it has.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mlflow import MlflowClient
from mlflow.data.code_dataset_source import CodeDatasetSource
from mlflow.entities import Dataset as MlflowDataset
from mlflow.entities import DatasetInput, InputTag, LoggedModel, LoggedModelOutput, Metric
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_LOGGED_ARTIFACTS

from tasks.run import Dataset, MadeModel

MAX_DIGEST_LENGTH = 36
"""MLflow's column (mlflow/store/tracking/dbmodels/models.py, SqlDataset.digest)."""
MODEL_TYPE = "lora-adapter"


def digest_of(dataset: Dataset) -> str:
    """A dataset's digest as MLflow keeps it."""
    return dataset.digest[:MAX_DIGEST_LENGTH]


def log_inputs(client: MlflowClient, run_id: str, datasets: Sequence[Dataset]) -> None:
    """MLflow itself keeps one of a name and digest."""
    client.log_inputs(run_id, [_input(dataset) for dataset in datasets])


def _input(dataset: Dataset) -> DatasetInput:
    kept = MlflowDataset(
        name=dataset.name,
        digest=digest_of(dataset),
        # The kind of source for what a program makes: a path is one of its facts, as seeds are.
        source_type=CodeDatasetSource._get_source_type(),
        source=json.dumps({"tags": dataset.source}),
        schema=json.dumps({"sha256": dataset.digest}),
        profile=json.dumps(dataset.profile),
    )
    return DatasetInput(kept, [InputTag(MLFLOW_DATASET_CONTEXT, dataset.context)])


def log_table(client: MlflowClient, run_id: str, rows: Sequence[Mapping[str, Any]], artifact_path: str) -> None:
    """As ``mlflow.log_table`` writes one, without what it adds where the table is there already: rows once more."""
    columns = list(rows[0]) if rows else []
    table = {"columns": columns, "data": [[row[column] for column in columns] for row in rows]}
    client.log_text(run_id, json.dumps(table), artifact_path)
    listed = json.loads(client.get_run(run_id).data.tags.get(MLFLOW_LOGGED_ARTIFACTS, "[]"))
    entry = {"path": artifact_path, "type": "table"}
    if entry not in listed:
        client.set_tag(run_id, MLFLOW_LOGGED_ARTIFACTS, json.dumps([*listed, entry]))


def find_model(client: MlflowClient, experiment_id: str, name: str) -> LoggedModel | None:
    """The oldest of this name."""
    ascending = [{"field_name": "creation_timestamp", "ascending": True}]
    found = client.search_logged_models([experiment_id], f"name = '{name}'", max_results=1, order_by=ascending)
    return found[0] if found else None


def _make_model(client: MlflowClient, experiment_id: str, run_id: str, made: MadeModel) -> LoggedModel:
    """Where an answer is lost MLflow's client asks again, and makes a second: the oldest is kept."""
    last = client.create_logged_model(
        experiment_id, made.name, run_id, tags={"step": str(made.step)}, params=made.params, model_type=MODEL_TYPE
    )
    kept = find_model(client, experiment_id, made.name) or last
    if kept.model_id != last.model_id:
        client.delete_logged_model(last.model_id)
    return kept


def log_model(client: MlflowClient, run_id: str, made: MadeModel) -> str:
    """The adapter as an output of the run, ready, with its evaluation's figures; returns the model's id."""
    run = client.get_run(run_id)
    experiment_id = run.info.experiment_id
    model = find_model(client, experiment_id, made.name) or _make_model(client, experiment_id, run_id, made)
    listed = run.outputs.model_outputs if run.outputs else []
    if model.model_id not in {output.model_id for output in listed}:
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, made.step)])
    known = {metric.key for metric in client.get_logged_model(model.model_id).metrics or []}
    dataset = {"dataset_name": made.dataset[0], "dataset_digest": made.dataset[1]} if made.dataset[0] else {}
    now_ms = int(time.time() * 1000)
    fresh = [
        Metric(key, value, now_ms, made.step, model_id=model.model_id, run_id=run_id, **dataset)
        for key, value in made.metrics.items()
        if key not in known
    ]
    if fresh:
        client.log_batch(run_id, metrics=fresh)
    client.finalize_logged_model(model.model_id, "READY")
    return model.model_id
