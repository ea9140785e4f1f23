"""What is trained and published is asked of MLflow and S3: only all of it together spares a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tasks.release.finished
from flows.deployments import load_settings
from flows.settings import RetrainSettings
from rl.grpo.settings import TrainJob
from tasks.errors import OtherSettings, OtherVersion
from tasks.records import FinishedTraining, PublishedAdapter, TrainingSide
from tasks.release.finished import FINISHED, keep_training, recall_training
from tasks.training.best import choose_best
from tests.recording import recording
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
    uri = f"{settings.serve.server.adapters_uri}/{settings.serve.server.base_model_id}/r-step-20"
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
