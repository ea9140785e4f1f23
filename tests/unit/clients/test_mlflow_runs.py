"""Runs in MLflow, on its own store in SQLite: known by what they are for, metrics told apart, refusals in words."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from tasks.clients.mlflow_names import LEFT_OUT_TAG
from tasks.clients.mlflow_runs import MlflowRuns, metric_key
from tasks.clients.retry import MLFLOW_REQUESTS, limit_mlflow_requests
from tasks.errors import TrackingRefused, TrackingUnavailable


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def runs(uri: str, request: pytest.FixtureRequest, tmp_path: Path) -> MlflowRuns:
    # Without a place of its own, a store in SQLite keeps artifacts in the folder that the process started in.
    MlflowClient(uri).create_experiment(request.node.name, (tmp_path / "artifacts").as_uri())
    return MlflowRuns(uri, request.node.name)


def test_a_run_whose_name_is_another_s_child_gets_a_run_of_its_own(runs: MlflowRuns) -> None:
    parent = runs.open("a", "pipeline", {})
    child = runs.open("a", "training", {"maze.attempt": "1"}, parent.run_id)
    assert runs.open("a-training-1", "pipeline", {}).run_id not in (parent.run_id, child.run_id)
    assert runs.open("a", "evaluation", {"maze.model_id": "m"}).run_id not in (parent.run_id, child.run_id)
    assert runs.open("a", "training", {"maze.attempt": "1"}, parent.run_id).run_id == child.run_id


def test_runs_that_differ_in_a_tag_are_two_and_quotation_marks_do_no_harm(runs: MlflowRuns) -> None:
    ids = {runs.open("e", "evaluation", {"maze.model_id": name}).run_id for name in ("m", "m:a", "o'neil's", "m")}
    assert len(ids) == 3


def test_a_run_that_was_renamed_by_hand_is_found_and_one_that_was_deleted_is_not(runs: MlflowRuns, uri: str) -> None:
    client, parent = MlflowClient(uri), runs.open("a", "pipeline", {})
    child = runs.open("a", "training", {"maze.attempt": "1"}, parent.run_id)
    client.update_run(parent.run_id, name="the good one")
    assert runs.open("a", "pipeline", {}).run_id == parent.run_id
    client.delete_run(parent.run_id)
    anew = runs.open("a", "pipeline", {})
    assert anew.run_id != parent.run_id
    assert runs.open("a", "training", {"maze.attempt": "1"}, anew.run_id).run_id != child.run_id


def test_a_deleted_experiment_is_named_with_what_to_do(uri: str) -> None:
    MlflowRuns(uri, "gone")
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("gone")
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    with pytest.raises(TrackingUnavailable, match=r"experiment gone is deleted; bring it back \(mlflow experiments"):
        MlflowRuns(uri, "gone")


def test_metrics_of_one_step_that_differ_in_a_sign_are_kept_apart_and_can_be_read_back(
    runs: MlflowRuns, uri: str
) -> None:
    run = runs.open("r", "pipeline", {})
    values = {"x@y": 1.0, "x#y": 2.0, "x:40y": 3.0, "größe": 4.0, "pass@1/train": 5.0, "plain/name_1-a b": 6.0}
    run.metrics(1, values)
    kept = MlflowClient(uri).get_run(run.run_id).data.metrics
    assert {unquote(key.replace(":", "%")): value for key, value in kept.items()} == values
    assert metric_key("plain/name_1-a b") == "plain/name_1-a b"


@pytest.mark.parametrize("name", ["/x", "a//b", "../x", "", ".", "x" * 251, "a/"])
def test_a_name_that_mlflow_takes_in_no_spelling_is_left_out_and_counted_and_the_others_stay(
    runs: MlflowRuns, uri: str, name: str
) -> None:
    run = runs.open("r", "pipeline", {})
    run.metrics(1, {"before": 1.0, name: 2.0, "behind": 3.0})
    run.metrics(2, {name: 2.0})
    data = MlflowClient(uri).get_run(run.run_id).data
    assert data.metrics == {"before": 1.0, "behind": 3.0}
    assert data.tags[LEFT_OUT_TAG].startswith("1: ")


def test_a_figure_told_again_adds_nothing_and_each_attempt_has_its_own(runs: MlflowRuns, uri: str) -> None:
    parent = runs.open("r", "pipeline", {})
    first, second = (runs.open("r", "training", {"maze.attempt": n}, parent.run_id) for n in ("1", "2"))
    first.metrics(13, {"loss": 57.0})
    second.metrics(13, {"loss": 20.0})
    runs.run(second.run_id).metrics(13, {"loss": 99.0})
    client = MlflowClient(uri)
    history = [client.get_metric_history(run.run_id, "loss") for run in (first, second)]
    assert [[point.value for point in points] for points in history] == [[57.0], [20.0]]


def test_a_figure_whose_answer_was_lost_is_told_again_and_stands_there_once(
    runs: MlflowRuns, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, run, log_batch = MlflowClient(uri), runs.open("r", "pipeline", {}), MlflowClient.log_batch

    def arrives(*args: Any, **kwargs: Any) -> None:
        log_batch(*args, **kwargs)
        raise MlflowException("the connection was reset")

    for step in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(MlflowClient, "log_batch", arrives)
            with pytest.raises(TrackingUnavailable, match="reset"):
                run.metrics(step, {"loss": 57.0})
        run.metrics(step, {"loss": 57.0, "late": 1.0})
    for name in ("loss", "late"):
        assert [point.step for point in client.get_metric_history(run.run_id, name)] == [1, 2]


def test_parameters_that_differ_from_the_kept_ones_are_named(runs: MlflowRuns) -> None:
    run = runs.open("r", "pipeline", {})
    assert run.params({"a.b": 1, "c": "x"}) == {}
    assert run.params({"a.b": 2, "c": "x", "new": True}) == {"a.b": ("1", "2")}


def test_the_end_of_a_run_ends_its_open_children_and_no_others(runs: MlflowRuns, uri: str) -> None:
    parent, other = runs.open("r", "pipeline", {}), runs.open("other", "pipeline", {})
    first, second = (runs.open("r", "training", {"maze.attempt": n}, parent.run_id) for n in ("1", "2"))
    first.end("FAILED")
    parent.end("FINISHED")
    client = MlflowClient(uri)
    states = [client.get_run(run.run_id).info.status for run in (parent, first, second, other)]
    assert states == ["FINISHED", "FAILED", "FINISHED", "RUNNING"]


def test_an_artifact_is_read_back_and_a_missing_one_is_none(runs: MlflowRuns) -> None:
    run = runs.open("r", "pipeline", {})
    run.text("hello", "a/b.json")
    assert (run.read("a/b.json"), run.read("a/c.json"), run.read("b.json")) == ("hello", None, None)


def test_what_mlflow_refuses_is_not_taken_for_its_absence(runs: MlflowRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    # MLflow's client would ask again for four minutes.
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrackingRefused, match="not found"):
        runs.run("0" * 32).tags({"a": "b"})
    with pytest.raises(TrackingUnavailable, match="does not answer"):
        MlflowRuns("http://127.0.0.1:9", "e")


def test_a_run_whose_beginning_was_told_twice_is_one(
    runs: MlflowRuns, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's client posts again where it got no answer (its Retry has allowed_methods=None), also what it made."""
    client, create_run = MlflowClient(uri), MlflowClient.create_run

    def twice(*args: Any, **kwargs: Any) -> Run:
        create_run(*args, **kwargs)
        time.sleep(0.01)
        return create_run(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "create_run", twice)
        begun = runs.open("r", "pipeline", {})
        child = runs.open("r", "training", {"maze.attempt": "1"}, begun.run_id)
    experiment_id = client.get_run(begun.run_id).info.experiment_id
    assert {run.info.run_id for run in client.search_runs([experiment_id])} == {begun.run_id, child.run_id}
    assert runs.open("r", "pipeline", {}).run_id == begun.run_id


def test_a_server_that_is_away_is_known_as_such_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MLFLOW_REQUESTS:
        monkeypatch.delenv(name, raising=False)
    began = time.monotonic()
    with pytest.raises(TrackingUnavailable, match="does not answer"):
        MlflowRuns("http://127.0.0.1:9", "e")
    assert time.monotonic() - began < 15


def test_the_patience_that_somebody_has_set_for_mlflow_s_client_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MLFLOW_REQUESTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    limit_mlflow_requests()
    assert {name: os.environ[name] for name in MLFLOW_REQUESTS} == {
        **MLFLOW_REQUESTS,
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    }
