"""What is trained and published is asked of MLflow and S3: only all of it together spares a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from mlflow import MlflowClient

import tasks.release.finished
from flows.deployments import load_settings
from flows.settings.retrain import RetrainSettings
from rl.grpo.settings import TrainJob
from serving.adapter import Manifest
from tasks.clients.mlflow_runs import MlflowRuns
from tasks.errors import OtherSettings, OtherVersion
from tasks.evidence.mlflow_log import Address, KeptLog, MlflowTaker
from tasks.evidence.outbox import Outbox
from tasks.records import FinishedTraining, PublishedAdapter, TrainingSide
from tasks.release.finished import FINISHED, keep_training, recall_training
from tasks.run import RunContext
from tasks.training.best import choose_best
from tests.moto_server import moto_server
from tests.recording import RecordingPage, recording
from tests.unit.samples import trained


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> RetrainSettings:
    monkeypatch.setenv("PROJECT_DIR", str(Path.cwd()))
    return load_settings("retrain/hyperpod", {})


@pytest.fixture
def order(settings: RetrainSettings) -> TrainJob:
    return TrainJob(run_name="r", train=settings.train, train_mazes_sha256="t")


@pytest.fixture
def finished(settings: RetrainSettings, order: TrainJob) -> FinishedTraining:
    best = choose_best(trained({0: 28, 20: 40}, [20]))
    uri = f"{settings.serve.server.adapters_uri}/r-step-20"
    adapter = PublishedAdapter(name="r-step-20", uri=uri, sha256="a" * 64, step=20, model_id="m:r-step-20")
    side = TrainingSide(evaluation=best.best, questions=settings.questions, answers=())
    return FinishedTraining(order=order, best=best, adapter=adapter, trained=side)


def in_store(monkeypatch: pytest.MonkeyPatch, finished: FinishedTraining, sha256: str | None) -> None:
    """S3 as AdapterStore shows it: the manifest with this digest, or none."""
    manifest = None if sha256 is None else SimpleNamespace(adapter_sha256=sha256)
    store = SimpleNamespace(uri=finished.adapter.uri, manifest=lambda: manifest)
    monkeypatch.setattr(tasks.release.finished, "s3_client", lambda: None)
    monkeypatch.setattr(tasks.release.finished, "AdapterStore", lambda *args: store)


def recalled(context: Any, settings: RetrainSettings, order: TrainJob) -> FinishedTraining | None:
    return recall_training.fn(context, order, settings.serve.server, settings.questions)


def test_what_was_kept_is_recalled_whole(
    monkeypatch: pytest.MonkeyPatch, settings: RetrainSettings, order: TrainJob, finished: FinishedTraining
) -> None:
    context, _ = recording()
    in_store(monkeypatch, finished, "a" * 64)
    assert recalled(context, settings, order) is None, "nothing was kept yet"
    keep_training.fn(context, finished)
    assert recalled(context, settings, order) == finished


def test_a_training_that_another_version_kept_is_refused_and_not_trained_again(
    monkeypatch: pytest.MonkeyPatch, settings: RetrainSettings, order: TrainJob, finished: FinishedTraining
) -> None:
    context, _ = recording()
    in_store(monkeypatch, finished, "a" * 64)
    document = finished.model_dump(mode="json")
    document["best"]["base"]["eval_set_sha256"] = document["best"]["base"].pop("rules")["eval_set_sha256"]
    context.run.text(json.dumps(document), FINISHED)
    with pytest.raises(OtherVersion, match=r"best\.base\.rules: Field required.*another run_name"):
        recalled(context, settings, order)


@pytest.mark.parametrize("sha256", [None, "b" * 64])
def test_an_adapter_that_is_gone_or_another_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
    settings: RetrainSettings,
    order: TrainJob,
    finished: FinishedTraining,
    sha256: str | None,
) -> None:
    context, _ = recording()
    in_store(monkeypatch, finished, sha256)
    keep_training.fn(context, finished)
    assert recalled(context, settings, order) is None


def test_a_longer_training_other_questions_and_another_training_are_not_what_was_finished(
    monkeypatch: pytest.MonkeyPatch, settings: RetrainSettings, order: TrainJob, finished: FinishedTraining
) -> None:
    context, _ = recording()
    in_store(monkeypatch, finished, "a" * 64)
    keep_training.fn(context, finished)
    document = order.model_dump()
    document["train"]["grpo"]["max_steps"] += 20
    assert recalled(context, settings, TrainJob.model_validate(document)) is None
    document["train"]["grpo"]["seed"] += 1
    with pytest.raises(OtherSettings, match=r"train\.grpo\.seed"):
        recalled(context, settings, TrainJob.model_validate(document))
    more = settings.questions.model_copy(update={"num_probes": settings.questions.num_probes + 1})
    assert recall_training.fn(context, order, settings.serve.server, more) is None


def test_mlflow_and_s3_tell_another_process_what_is_finished_and_an_adapter_that_went_is_made_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: RetrainSettings,
    order: TrainJob,
    finished: FinishedTraining,
) -> None:
    """MLflow's store in SQLite, S3 by moto."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "k")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    MlflowClient(uri).create_experiment("e", (tmp_path / "artifacts").as_uri())
    of_export = {"step": 20, "base_fingerprint": "", "rank": 8, "target_modules": (), "mlflow_run_id": ""}
    of_evaluation = {"num_solved": 40, "num_mazes": 64, "eval_set_sha256": ""}
    manifest = Manifest(adapter_name="r-step-20", run_name="r", sha256={"w": "a" * 64}, **of_export, **of_evaluation)
    adapter = finished.adapter.model_copy(update={"sha256": manifest.adapter_sha256})
    finished = finished.model_copy(update={"adapter": adapter})
    bucket, _, folder = adapter.uri.removeprefix("s3://").partition("/")

    def in_a_process(do: Callable[[RunContext], object]) -> object:
        runs = MlflowRuns(uri, "e")
        taker = MlflowTaker(runs)
        outbox = Outbox(tmp_path / "outbox", "o", taker.take, warned.append)
        run = KeptLog(outbox, taker, Address(run_id=runs.open("r", "pipeline", {}).run_id), "", "r")
        try:
            return do(RunContext("r", run, RecordingPage([])))
        finally:
            assert outbox.close(timeout_s=60) == 0

    def recall(context: RunContext) -> FinishedTraining | None:
        return recalled(context, settings, order)

    warned: list[str] = []
    with moto_server() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key=f"{folder}/manifest.json", Body=manifest.model_dump_json().encode())
        in_a_process(lambda context: keep_training.fn(context, finished))
        assert in_a_process(recall) == finished
        s3.delete_object(Bucket=bucket, Key=f"{folder}/manifest.json")
        assert in_a_process(recall) is None
    assert not warned
