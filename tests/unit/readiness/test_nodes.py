"""The job that looks at the nodes: how it is submitted and followed, how it may die, what becomes of its words."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rl.events import PREFIX, Checked, parse_line
from rl.readiness.settings import CHECKS, NodeReadiness, ReadyJob
from serving import store_check
from serving.store_check import StoreCheck
from tasks.errors import ClusterUnreachable
from tasks.jobs.api import JobState
from tasks.jobs.news import JobNews
from tasks.readiness.nodes import ENDED, check_nodes, command, submit_anew
from tasks.settings import JobSettings
from tests.recording import recording

JOB = JobSettings(project_dir="/p", python="python", reconnect_s=0.01)
STORE = StoreCheck(adapters_uri="s3://models/a", name="r-job", timeout_s=5)
ORDER = ReadyJob(
    run_name="r",
    checks=NodeReadiness(),
    device="cpu",
    num_gpus=6,
    num_policy_nodes=3,
    num_gpus_per_node=2,
    env={},
    shared_dir="/shared",
    min_free_disk_gb=1,
    model_path="/m",
    tracking_uri="http://mlflow",
)


class Jobs:
    """Ray Jobs that remembers ``known`` and tells ``lines`` before the job ends as ``ends``."""

    def __init__(self, lines: list[str], ends: str = "SUCCEEDED", known: Mapping[str, str] | None = None) -> None:
        self.lines, self.ends, self.known = lines, ends, dict(known or {})
        self.submitted: list[str] = []
        self.stopped: list[str] = []

    def submission_ids(self) -> list[str]:
        return list(self.known)

    def metadata(self, submission_id: str) -> dict[str, str]:
        return {}

    def submit(self, submission_id: str, entrypoint: str, env_vars: dict[str, str], metadata: Any = None) -> None:
        self.submitted.append(submission_id)

    def state(self, submission_id: str) -> JobState:
        return JobState(self.known.get(submission_id, self.ends), "")

    def under_way(self, submission_id: str) -> str:
        return "tasks that run:\n  none\n"

    def log_lines(self, submission_id: str, left_s: Callable[[], float]) -> Iterator[str]:
        for line in self.lines:
            if line == "SILENCE":
                raise TimeoutError
            yield line

    def stop(self, submission_id: str) -> None:
        self.stopped.append(submission_id)


class Cancelled(BaseException): ...


def told(*names: str, holds: bool = True) -> list[str]:
    return [PREFIX + Checked(name=name, holds=holds, found="f", remedy="r").model_dump_json() for name in names]


ALL = [*(name for name, _ in CHECKS.values()), store_check.CHECK]


def test_what_the_job_told_becomes_checks() -> None:
    found = check_nodes(lambda: Jobs(told(*ALL)), JOB, ORDER, STORE, JobNews(recording()[0]))
    assert [check.name for check in found] == ALL
    assert all(check.holds for check in found)


def test_a_job_that_dies_is_one_more_check_and_hides_nothing() -> None:
    jobs = Jobs([*told(ALL[0], holds=False), "OSError: no space left"], ends="FAILED")
    first, ended = check_nodes(lambda: jobs, JOB, ORDER, STORE, JobNews(recording()[0]))
    assert (first.name, first.holds) == (ALL[0], False)
    assert (ended.name, ended.holds) == (ENDED, False)
    assert "job r-ready-1 is FAILED" in ended.found
    assert "OSError: no space left" in ended.found
    assert f"nothing was told of: {ALL[1]}, " in ended.found


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["SILENCE"], "it said nothing for 545 s and was stopped; nothing was told of: "),
        (told(*ALL[:-1]), f"it succeeded; nothing was told of: {store_check.CHECK}"),
    ],
)
def test_a_job_that_says_too_little_does_not_pass(lines: list[str], found: str) -> None:
    *_, ended = check_nodes(
        lambda: Jobs(lines, ends="RUNNING" if "SILENCE" in lines else "SUCCEEDED"),
        JOB,
        ORDER,
        STORE,
        JobNews(recording()[0]),
    )
    assert not ended.holds
    assert ended.found.startswith(found)


def test_a_cluster_that_takes_no_jobs_is_a_check_too() -> None:
    def connect() -> Jobs:
        raise ClusterUnreachable("no Ray Jobs API at http://ray")

    (ended,) = check_nodes(connect, JOB, ORDER, STORE, JobNews(recording()[0]))
    assert ended.found.startswith("no Ray Jobs API at http://ray; nothing was told of: ")


def test_whoever_stops_following_stops_the_job() -> None:
    class Interrupted(JobNews):
        def line(self, text: str) -> None:
            raise Cancelled

    jobs = Jobs(["hello"], known={"r-ready-1": "RUNNING"})
    with pytest.raises(Cancelled):
        check_nodes(lambda: jobs, JOB, ORDER, STORE, Interrupted(recording()[0]))
    assert jobs.stopped == ["r-ready-1"]


@pytest.mark.parametrize(
    ("known", "wanted", "submits"),
    [
        ({}, "r-ready-1", True),
        ({"r-ready-1": "SUCCEEDED"}, "r-ready-2", True),
        ({"r-ready-1": "SUCCEEDED", "r-ready-2": "FAILED"}, "r-ready-3", True),
        ({"r-ready-1": "SUCCEEDED", "r-ready-2": "RUNNING"}, "r-ready-2", False),
    ],
)
def test_only_an_attempt_that_still_runs_is_taken_up(known: dict[str, str], wanted: str, submits: bool) -> None:
    jobs = Jobs([], known=known)
    assert submit_anew(jobs, "r-ready", "true") == wanted
    assert jobs.submitted == ([wanted] if submits else [])


def test_the_second_program_runs_whatever_becomes_of_the_first(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\necho "$2"\n[ "$2" = rl.readiness.job ]\n')
    fake.chmod(0o755)
    job = JobSettings(project_dir=str(tmp_path), python=str(fake))
    done = subprocess.run(command(job, ORDER, STORE), shell=True, capture_output=True, text=True)
    assert done.stdout.split() == ["serving.store_check", "rl.readiness.job"]
    assert done.returncode == 0, "the store's verdict is an event, not an exit code"


def answer(monkeypatch: pytest.MonkeyPatch, try_store: Callable[..., str]) -> Checked:
    monkeypatch.setattr(store_check, "try_store", try_store)
    monkeypatch.setattr(store_check, "s3_client", lambda: None)
    event = parse_line(PREFIX + json.dumps(store_check.check(STORE.model_copy(update={"timeout_s": 0.2}))))
    assert isinstance(event, Checked)
    return event


def test_the_store_s_verdict_is_an_event_that_the_orchestrator_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any) -> str:
        raise PermissionError("AccessDenied")

    held = threading.Event()
    assert answer(monkeypatch, lambda *_: "s3://models/a.probe-r-job").holds
    assert answer(monkeypatch, denied).found == "PermissionError: AccessDenied"
    late = answer(monkeypatch, lambda *_: str(held.wait(30)))
    held.set()
    assert (late.found, late.remedy) == ("no answer within 0.2 s", store_check.REMEDY)
