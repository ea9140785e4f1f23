"""Waiting for GPUs: time is an argument."""

from __future__ import annotations

import pytest

import tasks.cluster.wait
from tasks.cluster.settings import ClusterSettings
from tasks.cluster.wait import ensure_cluster, wait_for_gpus
from tasks.errors import ClusterNotReady
from tasks.jobs.api import JobState
from tasks.settings import JobSettings
from tests.recording import recording


def test_waiting_for_gpus_looks_again_until_they_are_free() -> None:
    looks = iter([0.0, 1.0, 2.0])
    slept: list[float] = []
    said: list[str] = []
    settings = ClusterSettings(jobs_address="http://ray", num_gpus=2, timeout_s=60, poll_s=5)
    found = wait_for_gpus(
        settings,
        look=lambda _: {"gpus_free": next(looks), "gpus_total": 2.0, "ray_version": "2.57.0"},
        say=said.append,
        sleep=slept.append,
        clock=lambda: 0.0,
    )
    assert found["gpus_total"] == 2
    assert slept == [5, 5]
    assert said[0] == "waiting for the cluster: 0 of 2 GPUs are free, 2 are wanted"


@pytest.mark.parametrize(
    ("known", "own_job"), [({"r-train-1": "FAILED", "r-train-2": "RUNNING"}, "r-train-2"), ({}, "")]
)
def test_gpus_that_this_run_s_own_training_holds_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, known: dict[str, str], own_job: str
) -> None:
    class Jobs:
        def __init__(self, address: str) -> None:
            pass

        def submission_ids(self) -> list[str]:
            return [*known, "other-train-1"]

        def state(self, submission_id: str) -> JobState:
            return JobState(known[submission_id], "")

    taken = {"gpus_free": 0.0, "gpus_total": 6.0, "ray_version": "2.57.0"}
    monkeypatch.setattr(tasks.cluster.wait, "RayJobs", Jobs)
    monkeypatch.setattr(tasks.cluster.wait, "cluster_resources", lambda address: taken)
    settings = ClusterSettings(jobs_address="http://ray", num_gpus=6, timeout_s=1e-3, poll_s=1e-3)
    job = JobSettings(project_dir="/p", python="python")
    context, _ = recording()
    if own_job:
        assert ensure_cluster.fn(context, settings, job).own_job == own_job
    else:
        with pytest.raises(ClusterNotReady, match="0 of 6 GPUs are free"):
            ensure_cluster.fn(context, settings, job)


def test_waiting_for_gpus_ends_with_what_is_and_what_was_wanted() -> None:
    times = iter([0.0, 30.0, 61.0])
    settings = ClusterSettings(jobs_address="http://ray", num_gpus=6, timeout_s=60, poll_s=5)
    with pytest.raises(
        ClusterNotReady, match="after 60 s 4 of 6 GPUs are free, 6 are wanted at http://ray; end the job"
    ):
        wait_for_gpus(
            settings,
            look=lambda _: {"gpus_free": 4.0, "gpus_total": 6.0, "ray_version": ""},
            say=lambda _: None,
            sleep=lambda _: None,
            clock=lambda: next(times),
        )
