"""Readiness: every check runs, each failure is named with its remedy, and a hanging one holds up nothing."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from pydantic import ValidationError

from serving.publish import UploadFailed, try_store
from tasks.checks import ToCheck, Unready, require_ready, run_checks, start_checks
from tasks.clients.mlflow_check import try_registry, try_tracking
from tasks.errors import AddressTaken, ClusterNotReady, TrackingUnavailable
from tasks.readiness import check as readiness
from tasks.readiness.check import check_readiness, others
from tasks.readiness.settings import ReadinessSettings
from tasks.records import Check, ClusterRef
from tasks.settings import JobSettings, TrackingSettings
from tests.recording import recording


def test_all_checks_run_and_all_failures_are_told_at_once() -> None:
    def denied() -> str:
        raise PermissionError("AccessDenied")

    hangs = threading.Event()
    found = run_checks(
        [
            ToCheck("store", denied, "check the credentials"),
            ToCheck("ray", lambda: "6 GPUs", "start it"),
            ToCheck("serving", lambda: str(hangs.wait(30)), "start the serving cluster"),
        ],
        timeout_s=0.2,
    )
    hangs.set()
    assert [(check.name, check.holds) for check in found] == [("store", False), ("ray", True), ("serving", False)]
    wanted = (
        r"- store: PermissionError: AccessDenied; check the credentials\n"
        r"- serving: no answer within 0.2 s; start the serving cluster"
    )
    with pytest.raises(ClusterNotReady, match=wanted):
        require_ready(found)
    require_ready(found[1:2])


def test_all_checks_together_have_one_time_limit() -> None:
    hangs = threading.Event()
    wanted = [ToCheck(str(number), lambda: str(hangs.wait(30)), "wait") for number in range(5)]
    began = time.monotonic()
    found = run_checks(wanted, timeout_s=0.3)
    took_s = time.monotonic() - began
    hangs.set()
    assert [check.found for check in found] == ["no answer within 0.3 s"] * 5
    assert took_s < 2 * 0.3 + 0.5


def test_the_time_runs_from_the_start_and_not_from_the_collecting() -> None:
    hangs, times = threading.Event(), iter([0.0, 61.0, 61.0])
    slow, quick = ToCheck("slow", lambda: str(hangs.wait(30)), "wait"), ToCheck("quick", lambda: "here", "")
    collect = start_checks([slow, quick], timeout_s=60.0, clock=lambda: next(times))
    began = time.monotonic()
    time.sleep(0.3)
    found = collect()
    hangs.set()
    assert time.monotonic() - began < 10
    assert [(check.holds, check.found) for check in found] == [(False, "no answer within 60 s"), (True, "here")]


def test_a_look_that_runs_into_its_own_limit_says_so() -> None:
    def own_limit() -> str:
        raise TimeoutError("the read took 5 s")

    (found,) = run_checks([ToCheck("store", own_limit, "wait")], timeout_s=60.0)
    assert found.found == "TimeoutError: the read took 5 s"


def test_an_error_of_ours_is_a_sentence_without_its_class_and_brings_its_own_remedy() -> None:
    def fails(error: Exception) -> Callable[[], str]:
        def look() -> str:
            raise error

        return look

    errors = (AddressTaken("another process listens there"), Unready("it is Updating"), ValueError("no port"))
    asked = [ToCheck("the address is free", fails(error), "look") for error in errors]
    taken, updating, library = run_checks(asked, 5.0)
    assert (taken.found, taken.remedy) == ("another process listens there", AddressTaken.todo)
    assert (updating.found, updating.remedy) == ("it is Updating", "look")
    assert (library.found, library.remedy) == ("ValueError: no port", "look")


def test_the_nodes_are_asked_while_the_other_checks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    context, events = recording()
    nodes_are_asked = threading.Event()

    def on_nodes(*asked: Any) -> tuple[Check, ...]:
        nodes_are_asked.set()
        return (Check(name="nodes", holds=True, found="fine"),)

    waits = ToCheck("own", lambda: str(nodes_are_asked.wait(10)), "wait")
    monkeypatch.setattr(readiness, "hosting_of", lambda hosting: SimpleNamespace(checks=lambda *asked: []))
    monkeypatch.setattr(readiness, "own_checks", lambda *asked: [waits])
    monkeypatch.setattr(readiness, "check_nodes", on_nodes)
    monkeypatch.setattr(readiness, "ready_job", lambda *asked: None)
    cluster: Any = SimpleNamespace(jobs_address="http://ray", job=None, own_job="")
    needs: Any = SimpleNamespace(hosting=None, serve_dashboard="", serve_listen="", adapters_uri="s3://models/a")
    readiness.check_readiness.fn(context, ReadinessSettings(timeout_s=20.0), needs, cluster)
    assert events == ["table readiness", "log readiness.json"]
    assert '"found": "True"' in context.run.texts["readiness.json"]  # type: ignore[attr-defined]


def test_jobs_of_other_runs_are_in_the_way_and_this_runs_own_are_not() -> None:
    assert others(["run-a-train-1"], "run-a") == "none"
    with pytest.raises(Unready, match="unfinished jobs: run-b-train-2"):
        others(["run-a-train-1", "run-b-train-2"], "run-a")


class Store:
    """Records what is asked; ``refuses`` one verb, ``forgets`` what it was given, or ``hides`` that nothing is there.

    S3 hides it from who may not list the bucket (API reference of GetObject, "Permissions").
    """

    def __init__(self, refuses: str = "", forgets: bool = False, hides: bool = False) -> None:
        self.refuses, self.forgets, self.hides = refuses, forgets, hides
        self.calls: list[str] = []
        self.objects: dict[str, bytes] = {}

    def _hear(self, verb: str) -> None:
        self.calls.append(verb)
        if verb == self.refuses:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, verb)

    def put_object(self, **sent: Any) -> None:
        self._hear("put")
        self.objects[sent["Key"]] = b"" if self.forgets else sent["Body"]

    def get_object(self, **sent: Any) -> dict[str, Any]:
        self._hear("get")
        if sent["Key"] not in self.objects:
            code = "AccessDenied" if self.hides else "NoSuchKey"
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "GetObject")
        return {"Body": io.BytesIO(self.objects[sent["Key"]])}

    def delete_object(self, **sent: Any) -> None:
        self._hear("delete")
        self.objects.pop(sent["Key"], None)

    def list_objects_v2(self, **sent: Any) -> dict[str, Any]:
        self._hear("list")
        return {"Contents": [{"Key": key} for key in self.objects if key.startswith(sent["Prefix"])]}


def test_the_store_is_tried_beside_the_adapters_and_left_as_it_was() -> None:
    store = Store()
    assert try_store(store, "s3://models/adapters/tiny", "r") == "s3://models/adapters/tiny.probe-r"
    assert store.calls == ["delete", "get", "put", "get", "list", "delete"]
    assert store.objects == {}


@pytest.mark.parametrize("verb", ["put", "get", "list", "delete"])
def test_a_store_that_refuses_one_of_them_is_named_with_its_words(verb: str) -> None:
    with pytest.raises(UploadFailed, match=r"s3://models/a.probe-r: .*AccessDenied"):
        try_store(Store(refuses=verb), "s3://models/a", "r")


def test_a_store_that_does_not_say_what_is_absent_is_found_out_with_the_permission_that_lacks() -> None:
    with pytest.raises(UploadFailed, match=r"AccessDenied.*grant it s3:GetObject and s3:ListBucket"):
        try_store(Store(hides=True), "s3://models/a", "r")


def test_the_registry_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    for _ in range(2):
        assert try_registry(uri, "r", "s3://models/a/r") == "readiness-probe-r"
    assert list(MlflowClient(uri).search_registered_models()) == []


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("create_registered_model", "creating a registered model"),
        ("create_model_version", "creating a version"),
        ("set_registered_model_alias", "setting an alias"),
    ],
)
def test_a_registry_that_refuses_one_verb_is_named_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, words: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise MlflowException("Permission denied")

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, verb, refuse)
        with pytest.raises(TrackingUnavailable, match=rf"{words} \(readiness-probe-r\) failed: Permission denied"):
            try_registry(uri, "r", "s3://models/a/r")
    assert list(MlflowClient(uri).search_registered_models()) == []


def test_a_run_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    experiment_id = MlflowClient(uri).create_experiment("mazes", str(tmp_path / "artifacts"))
    # What a process that was killed in the middle left there, and another run's, which may be under way.
    left, other = (
        MlflowClient(uri).create_run(experiment_id, tags={"maze.probe": name}).info.run_id for name in ("r", "other")
    )
    for _ in range(2):
        assert try_tracking(uri, "mazes", "r") == "mazes"
    assert [run.info.run_id for run in MlflowClient(uri).search_runs([experiment_id])] == [other]
    assert MlflowClient(uri).get_run(left).info.lifecycle_stage == "deleted"


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("get_experiment_by_name", "finding the experiment"),
        ("create_run", "beginning a run"),
        ("log_metric", "logging a number"),
        ("log_text", "logging a file"),
        ("download_artifacts", "reading what was logged"),
    ],
)
def test_a_server_that_refuses_a_run_one_verb_is_named_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, words: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise MlflowException("Permission denied")

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    experiment_id = MlflowClient(uri).create_experiment("mazes", str(tmp_path / "artifacts"))
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, verb, refuse)
        with pytest.raises(TrackingUnavailable, match=rf"{words} \(mazes\) failed: Permission denied"):
            try_tracking(uri, "mazes", "r")
    assert MlflowClient(uri).search_runs([experiment_id]) == []


def test_sagemaker_s_own_mlflow_is_refused_with_what_takes_its_place() -> None:
    uri = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/maze"
    with pytest.raises(ValidationError, match=r"not supported(.|\n)*docker/mlflow.yaml starts one"):
        TrackingSettings(tracking_uri=uri, outbox_dir="unused", logs_dir="unused")


def test_a_store_that_gives_back_something_else_is_found_out() -> None:
    with pytest.raises(UploadFailed, match="1 bytes were written and 0 other ones read"):
        try_store(Store(forgets=True), "s3://models/a", "r")


@pytest.mark.parametrize("own_job", ["", "r-train-1"])
def test_nodes_on_which_this_run_trains_already_are_asked_nothing(
    monkeypatch: pytest.MonkeyPatch, own_job: str
) -> None:
    asked: list[str] = []
    for name, answer in {
        "own_checks": [ToCheck("ray", lambda: "6 GPUs", "")],
        "hosting_of": SimpleNamespace(checks=lambda *asked: []),
        "ready_job": None,
        "StoreCheck": None,
    }.items():
        monkeypatch.setattr(readiness, name, lambda *args, answer=answer, **kwargs: answer)
    monkeypatch.setattr(readiness, "check_nodes", lambda *args: asked.append("nodes") or [])
    job = JobSettings(project_dir="/p", python="python")
    cluster = ClusterRef(jobs_address="http://ray", ray_version="2", num_gpus=2, job=job, own_job=own_job)
    needs: Any = SimpleNamespace(hosting=None, serve_dashboard="", serve_listen="", adapters_uri="s3://b/a")
    settings: Any = SimpleNamespace(timeout_s=1, nodes=None)
    check_readiness.fn(recording()[0], settings, needs, cluster)
    assert asked == ([] if own_job else ["nodes"])
