"""Clean-up of a run's jobs: which are stopped, who may order it, and what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tasks.cleanup.clean_up import order_of
from tasks.cleanup.in_ray import Jobs
from tasks.cleanup.order import Order
from tasks.cleanup.parts import Leftover, clean
from tasks.errors import AttemptsUnknown, ClusterUnreachable
from tasks.jobs.api import JobState
from tasks.run import Attempt
from tests.recording import recording

BY_HAND = Order()


class FakeJobs:
    """Jobs that end one look after they were stopped."""

    def __init__(self, *unfinished: str, flow_runs: Mapping[str, str] = {}) -> None:
        self.running, self.stopping, self.events = list(unfinished), "", []
        self.flow_runs = flow_runs

    def metadata(self, submission_id: str) -> dict[str, str]:
        """As Ray gives it back: what the job was submitted with (dashboard/modules/job/common.py, JobInfo)."""
        return {"maze.flow_run_id": self.flow_runs[submission_id]} if submission_id in self.flow_runs else {}

    def unfinished(self) -> list[str]:
        return list(self.running)

    def stop(self, submission_id: str) -> None:
        self.events.append(f"stop {submission_id}")
        self.stopping = submission_id

    def state(self, submission_id: str) -> JobState:
        gone = submission_id not in self.running
        if submission_id == self.stopping:
            self.running.remove(submission_id)
            self.stopping = ""
        return JobState(status="STOPPED" if gone else "RUNNING", message="")


def jobs_part(connect: Any, order: Order = BY_HAND, is_gone: bool = False, slept: list[float] | None = None) -> Jobs:
    return Jobs(connect, lambda: is_gone, order, 3.0, (slept if slept is not None else []).append)


def test_only_this_run_s_jobs_are_stopped_and_they_have_ended_afterwards() -> None:
    jobs = FakeJobs("r-train-1", "r-publish-8-1", "r-2-train-1", "other")
    part = jobs_part(lambda: jobs)
    for _ in range(2):
        assert clean([part], ["jobs"], "r", dry_run=False, say=lambda text: None) == []
    assert jobs.events == ["stop r-train-1", "stop r-publish-8-1"]
    assert jobs.running == ["r-2-train-1", "other"]


def silent() -> Any:
    raise ClusterUnreachable("no Ray Jobs API")


def test_a_cluster_that_is_known_to_be_gone_has_no_jobs() -> None:
    assert jobs_part(silent, is_gone=True).find("r") == []


def test_jobs_that_nobody_could_look_at_are_listed_and_the_clean_up_is_not_complete() -> None:
    left: list[Leftover] = []
    with pytest.raises(ExceptionGroup, match="clean-up of r is not complete; run it again"):
        clean([jobs_part(silent)], ["jobs"], "r", dry_run=True, say=lambda text: None, left=left)
    assert [(thing.name, thing.found, thing.keep) for thing in left] == [
        ("jobs of r", "not looked at", "no Ray Jobs API")
    ]


def test_a_jobs_api_that_falls_silent_between_two_questions_is_not_an_empty_one() -> None:
    jobs = FakeJobs("r-train-1")
    jobs.metadata = lambda submission_id: silent()  # type: ignore[method-assign]
    with pytest.raises(ClusterUnreachable):
        jobs_part(lambda: jobs).find("r")


def attempts(*told: tuple[str, str]) -> tuple[Attempt, ...]:
    """Flow runs in the order in which they began, and Prefect's word for each."""
    start = datetime(2026, 11, 30, tzinfo=UTC)
    over = ("FAILED", "CRASHED", "COMPLETED", "CANCELLED")
    return tuple(
        Attempt(name, state, state in over, start + timedelta(hours=number))
        for number, (name, state) in enumerate(told)
    )


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (Order(), ""),
        (Order("f-1", attempts(("f-1", "FAILED"))), ""),
        (Order("f-2", attempts(("f-1", "CRASHED"), ("f-2", "FAILED"))), ""),
        (Order("f-1", attempts(("f-1", "RUNNING")), is_its_own=True), ""),
        (Order("f-1", attempts(("f-1", "RUNNING"))), "flow run f-1 is RUNNING again"),
        (Order("f-1", attempts(("f-1", "FAILED"), ("f-2", "RUNNING"))), "flow run f-2 is RUNNING under this name"),
        (Order("f-1", attempts(("f-1", "FAILED"), ("f-2", "AWAITINGRETRY"))), "flow run f-2 is AWAITINGRETRY under"),
        (Order("f-1", attempts(("f-1", "FAILED"), ("f-2", "CRASHED"))), "flow run f-2 came later: its own clean-up"),
        (Order("f-2", attempts(("f-1", "RUNNING"), ("f-2", "FAILED"))), "flow run f-1 is RUNNING under this name"),
        (Order("f-1", attempts(("f-2", "RUNNING"))), "flow run f-2 is RUNNING under this name"),
        (Order("f-1", attempts(("f-2", "FAILED"))), ""),
    ],
)  # fmt: skip
def test_an_order_is_overtaken_by_a_flow_run_that_works_or_came_later(order: Order, why: str) -> None:
    assert order.overtaken.startswith(why)
    assert bool(order.overtaken) == bool(why)
    jobs = FakeJobs("r-train-1")
    left = clean([jobs_part(lambda: jobs)], ["jobs"], "r", False, lambda text: None, overtaken=order.overtaken)
    assert [thing.keep for thing in left] == ([order.overtaken] if why else [])
    assert jobs.events == ([] if why else ["stop r-train-1"])


def test_a_job_of_another_flow_run_stays_unless_the_one_that_ended_took_it_up() -> None:
    known = attempts(("f-0", "CRASHED"), ("f-1", "FAILED"))
    owners = {"r-train-1": "f-0", "r-train-2": "f-1", "r-train-3": "f-9"}
    jobs = FakeJobs("r-train-1", "r-train-2", "r-train-3", "r-train-4", flow_runs=owners)
    left = clean([jobs_part(lambda: jobs, Order("f-1", known))], ["jobs"], "r", False, lambda text: None)
    assert jobs.events == ["stop r-train-1", "stop r-train-2", "stop r-train-4"]
    assert [(thing.name, thing.keep) for thing in left] == [
        ("r-train-3", "it belongs to flow run f-9, not to f-1 that ended")
    ]


def test_who_orders_a_clean_up_has_to_know_the_attempts_and_a_flow_run_s_own_goes_on_without() -> None:
    def unknown() -> Any:
        raise AttemptsUnknown("Prefect does not say")

    context = replace(recording()[0], flow_run_id="f-1", attempts=unknown)
    assert order_of(context, "").attempts == ()
    assert order_of(context, "f-1") == Order("f-1", (), is_its_own=True)
    with pytest.raises(AttemptsUnknown):
        order_of(context, "f-0")


def test_a_job_that_does_not_end_is_an_error() -> None:
    jobs = FakeJobs("r-train-1")
    jobs.state = lambda submission_id: JobState(status="RUNNING", message="")  # type: ignore[method-assign]
    left: list[Leftover] = []
    with pytest.raises(ExceptionGroup) as caught:
        clean([jobs_part(lambda: jobs)], ["jobs"], "r", dry_run=False, say=lambda text: None, left=left)
    assert left[0].keep.startswith("it could not be removed: job r-train-1 has not ended")
    assert "r-train-1 has not ended 3 s after it was stopped" in str(caught.value.exceptions[0])
