"""A training job that dies is followed by another one, or is not: which, why, and in which order things are asked.

Ray Jobs is a script. Its rules: a used id is refused, a job that is over stays so (ray 2.57,
dashboard/modules/job/job_manager.py); a killed driver leaves the sentence that Ray 2.57 leaves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

import tasks.jobs.run_job
from flows.deployments import load_settings
from rl.events import PREFIX, Completed, Event, Fault, Metrics, Progress, Resumed, Saved
from rl.grpo.settings import TrainJob
from tasks.errors import TrainingJobFailed, TrainingStalled
from tasks.jobs.api import JobState
from tasks.records import ClusterRef, TrainedRun
from tasks.run import RunContext
from tasks.settings import JobSettings
from tasks.training.train import run_training
from tests.recording import RecordingLog, RecordingPage, recording
from tests.unit.samples import MAZES

KILLED = (
    "Job entrypoint command failed with exit code -9, last available logs (truncated to 20,000 chars):\nstep 3 begins"
)


@dataclass
class Act:
    """What one job tells, and how it ends."""

    told: list[Event]
    ends: str = "FAILED"
    message: str = ""


class Stage:
    """Ray Jobs by a script: an act a submission."""

    def __init__(self, acts: list[Act]) -> None:
        self.acts, self.played = acts, dict[str, Act]()
        self.asked: list[str] = []

    def submission_ids(self) -> list[str]:
        return list(self.played)

    def submit(
        self, submission_id: str, entrypoint: str, env_vars: dict[str, str], metadata: Mapping[str, str] | None = None
    ) -> None:
        assert submission_id not in self.played, "Ray refuses a used id"
        self.asked.append(f"submit {submission_id}")
        self.played[submission_id] = self.acts.pop(0)

    def state(self, submission_id: str) -> JobState:
        act = self.played[submission_id]
        return JobState(act.ends, act.message, "")

    def metadata(self, submission_id: str) -> Mapping[str, str]:
        raise AssertionError("whose a job is does not matter here")

    def under_way(self, submission_id: str) -> str:
        return "tasks that run:\n  none\n"

    def log_lines(self, submission_id: str, left_s: Callable[[], float]) -> Iterator[str]:
        told = f"read {submission_id}"
        if self.asked[-1] != told:
            self.asked.append(told)
        yield from [PREFIX + event.model_dump_json() for event in self.played[submission_id].told]
        if self.played[submission_id].ends == "RUNNING":
            raise TimeoutError

    def stop(self, submission_id: str) -> None:
        self.asked.append(f"stop {submission_id}")
        self.played[submission_id].ends = "STOPPED"


def begins(attempt: int, step: int) -> list[Event]:
    """As rl/grpo/start.py tells it: the attempts before, then this one."""
    before: list[Event] = [Resumed(attempt=number, step=0, path="", is_over=True) for number in range(1, attempt)]
    return [*before, Resumed(attempt=attempt, step=step, path="")]


def trains(first: int, last: int) -> list[Event]:
    numbers: list[Event] = [Metrics(step=step, values={"loss": 1.0}) for step in range(first, last + 1)]
    return [*numbers, Progress(done=last, total=8, text="")]


def checkpoint(step: int) -> Event:
    return Saved(kind="checkpoint", step=step, path=f"/{step}", sha256={})


def fatal(boundary: str, message: str) -> Event:
    return Fault(boundary=boundary, message=message, fatal=True)


@dataclass
class Run:
    """One call of the stage."""

    jobs: Stage
    context: RunContext
    events: list[str]
    trained: TrainedRun | None = None
    error: TrainingJobFailed | TrainingStalled | None = None

    @property
    def said(self) -> list[str]:
        assert isinstance(self.context.page, RecordingPage)
        return [text for text in self.context.page.said if " died " in text or "not followed" in text]


@pytest.fixture(scope="module")
def order() -> TrainJob:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROJECT_DIR", str(Path.cwd()))
        settings = load_settings("retrain/hyperpod", {})
    return TrainJob(run_name="r", train=settings.train, train_mazes_sha256=MAZES.train_sha256)


def train(
    monkeypatch: pytest.MonkeyPatch,
    order: TrainJob,
    max_attempts: int,
    *acts: Act,
    on_stall: Literal["resubmit", "fail"] = "resubmit",
) -> Run:
    jobs = Stage(list(acts))
    monkeypatch.setattr(tasks.jobs.run_job, "RayJobs", lambda address: jobs)
    job = JobSettings(project_dir="/p", python="python", max_training_attempts=max_attempts, on_stall=on_stall)
    cluster = ClusterRef(jobs_address="http://ray", ray_version="2.57.0", num_gpus=6, job=job)
    run = Run(jobs, *recording())
    try:
        run.trained = run_training.fn(run.context, order, MAZES, cluster)
    except (TrainingJobFailed, TrainingStalled) as error:
        run.error = error
    return run


def test_a_killed_job_is_followed_by_one_that_goes_on_and_its_cause_is_kept(
    monkeypatch: pytest.MonkeyPatch, order: TrainJob
) -> None:
    first = Act([*begins(1, 0), *trains(1, 2), checkpoint(2), *trains(3, 3)], message=KILLED)
    second = Act([*begins(2, 2), *trains(3, 8), checkpoint(8), Completed()], "SUCCEEDED")
    run = train(monkeypatch, order, 2, first, second)
    assert run.jobs.asked == ["submit r-train-1", "read r-train-1", "submit r-train-2", "read r-train-2"]
    assert run.said == [
        "r-train-1 died at step 3: Job entrypoint command failed with exit code -9. "
        "Job 2 of at most 2 goes on from the newest whole checkpoint"
    ]
    assert run.trained is not None
    assert (run.trained.submission_id, run.trained.resumed_from_step, run.trained.last_step) == ("r-train-2", 2, 8)
    (died,) = run.trained.died
    assert (died.submission_id, died.step, died.held_step) == ("r-train-1", 3, 2)
    assert run.trained.in_words() == "8 steps; 1 of its jobs died"
    assert TrainedRun.model_validate_json(run.trained.model_dump_json()) == run.trained
    assert isinstance(run.context.run, RecordingLog)
    assert set(run.context.run.children) == {"training-1", "training-2"}
    ended = [event for event in run.events if event in ("end FAILED", "end FINISHED", "begin", "tags maze.died")]
    assert ended[:3] == ["begin", "tags maze.died", "end FAILED"], (
        "the attempt is closed before the next job is asked for"
    )
    assert ended[-1] == "end FINISHED"


def test_no_more_jobs_follow_than_the_settings_allow_and_the_last_one_s_words_are_raised(
    monkeypatch: pytest.MonkeyPatch, order: TrainJob
) -> None:
    acts = [
        Act([*begins(number, number - 1), *trains(number, number), checkpoint(number)], message=KILLED)
        for number in (1, 2, 3)
    ]
    run = train(monkeypatch, order, 3, *acts)
    assert run.jobs.asked[-1] == "read r-train-3"
    assert str(run.error).startswith("job r-train-3 is FAILED at step 3; it reported no fault that ended it")
    assert str(run.error).endswith("not tried again: it was job 3 of at most 3 (job.max_training_attempts)")
    assert [text.partition(" ")[0] for text in run.said] == ["r-train-1", "r-train-2", "r-train-3"]
    assert run.said[-1].startswith("r-train-3 is not followed by another job: it was job 3")


def test_with_one_attempt_none_follows(monkeypatch: pytest.MonkeyPatch, order: TrainJob) -> None:
    run = train(monkeypatch, order, 1, Act([*begins(1, 0), *trains(1, 3)], message=KILLED))
    assert run.jobs.asked == ["submit r-train-1", "read r-train-1"]
    assert run.error is not None


@pytest.mark.parametrize(
    ("told", "message", "why"),
    [
        ([fatal("CannotStart", "model folder /m has no config.json")], "", "CannotStart would end the next one, too"),
        ([fatal("CheckpointMismatch", "4 ranks, 6 wanted")], "", "CheckpointMismatch would end"),
        ([*begins(1, 0), fatal("AssertionError", "policy_num_gpus")], "", "AssertionError would end"),
        ([], "Job entrypoint command failed with exit code 127", "a command that is not there would end"),
    ],
)
def test_a_cause_that_cannot_get_better_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, order: TrainJob, told: list[Event], message: str, why: str
) -> None:
    run = train(monkeypatch, order, 5, Act(told, message=message))
    assert run.jobs.asked == ["submit r-train-1", "read r-train-1"]
    assert f"not tried again: {why}" in str(run.error)


def test_the_same_error_after_steps_is_no_refusal(monkeypatch: pytest.MonkeyPatch, order: TrainJob) -> None:
    first = Act([*begins(1, 0), *trains(1, 3), fatal("ValueError", "a file of the cache is cut")])
    run = train(monkeypatch, order, 2, first, Act([*begins(2, 0), *trains(1, 8)], "SUCCEEDED"))
    assert run.trained is not None
    assert run.trained.last_step == 8


def test_the_same_fault_at_the_same_step_without_a_checkpoint_between_ends_it(
    monkeypatch: pytest.MonkeyPatch, order: TrainJob
) -> None:
    def out_of_memory(attempt: int, pid: int) -> Act:
        return Act([*begins(attempt, 0), *trains(1, 3), fatal("training", f"step 4: out of memory, pid={pid}")])

    run = train(monkeypatch, order, 5, out_of_memory(1, 4711), out_of_memory(2, 815))
    assert run.jobs.asked == ["submit r-train-1", "read r-train-1", "submit r-train-2", "read r-train-2"]
    assert "not tried again: the job before it died of the same at step 3" in str(run.error)


def test_the_same_fault_after_a_new_checkpoint_is_tried_again(monkeypatch: pytest.MonkeyPatch, order: TrainJob) -> None:
    acts = [
        Act([*begins(number, 2 * number - 2), *trains(1, 2 * number), checkpoint(2 * number)], message=KILLED)
        for number in (1, 2)
    ]
    run = train(monkeypatch, order, 3, *acts, Act([*begins(3, 4), *trains(5, 8)], "SUCCEEDED"))
    assert run.trained is not None
    assert len(run.trained.died) == 2


def test_a_job_that_somebody_stopped_stays_stopped(monkeypatch: pytest.MonkeyPatch, order: TrainJob) -> None:
    run = train(monkeypatch, order, 5, Act([*begins(1, 0), *trains(1, 3)], "STOPPED", "Job was intentionally stopped."))
    assert "not tried again: somebody stopped it" in str(run.error)


@pytest.mark.parametrize(("on_stall", "follows"), [("resubmit", True), ("fail", False)])
def test_a_job_that_stalled_is_followed_by_another_one_or_ends_the_run_by_setting(
    monkeypatch: pytest.MonkeyPatch, order: TrainJob, on_stall: Literal["resubmit", "fail"], follows: bool
) -> None:
    hangs = Act([*begins(1, 0), *trains(1, 3), checkpoint(2)], "RUNNING")
    goes_on = Act([*begins(2, 2), *trains(3, 8), checkpoint(8)], "SUCCEEDED")
    run = train(monkeypatch, order, 2, hangs, goes_on, on_stall=on_stall)
    stopped = ["submit r-train-1", "read r-train-1", "stop r-train-1", "read r-train-1"]
    assert run.jobs.asked == [*stopped, *(["submit r-train-2", "read r-train-2"] if follows else [])]
    if follows:
        assert run.said[0].startswith(
            "r-train-1 died at step 3: job r-train-1 made no progress for 1800 s at step 3 and"
        )
        assert run.trained is not None
    else:
        assert "not tried again: it stalled (job.on_stall is fail)" in str(run.error)


def test_prefect_repeats_neither_flow_nor_stage_whatever_its_settings_say() -> None:
    code = (
        "import flows.retrain as r, tasks.training.train as t\n"
        "print(r.retrain.retries, t.run_training.retries, r.publish_adapter.retries)"
    )
    env = {**os.environ, "PREFECT_FLOWS_DEFAULT_RETRIES": "3", "PREFECT_TASKS_DEFAULT_RETRIES": "3"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0", "0"]
