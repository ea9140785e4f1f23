"""Waiting for GPUs: time is an argument."""

from __future__ import annotations

import pytest

from tasks.cluster.settings import ClusterSettings
from tasks.cluster.wait import wait_for_gpus
from tasks.errors import ClusterNotReady


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
