"""A run's name is not the run: what was trained under it before is compared, before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from flows.deployments import load_settings
from rl.events import PREFIX, Evaluated, Metrics, Resumed, Saved
from rl.grpo.settings import TrainJob, TrainSettings
from tasks.errors import OtherSettings
from tasks.jobs.api import JobState
from tasks.jobs.news import JobNews
from tasks.jobs.story import JobStory
from tasks.jobs.submit import entrypoint, submit_once
from tasks.records import TrainedRun
from tasks.settings import JobSettings, dotted
from tasks.training.train import order_training, takes_up, trained_run
from tests.recording import RecordingLog, recording
from tests.unit.samples import MAZES, report

JOB = JobSettings(project_dir="/p", python="python")


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> TrainJob:
    monkeypatch.setenv("PROJECT_DIR", str(Path.cwd()))
    settings = load_settings("retrain/hyperpod", {})
    return TrainJob(run_name="r", train=settings.train, train_mazes_sha256=MAZES.train_sha256)


def changed(order: TrainJob, **grpo: Any) -> TrainJob:
    document = order.model_dump()
    document["train"]["grpo"] |= grpo
    return TrainJob.model_validate(document)


class Known:
    """Ray Jobs that remembers jobs of the run: id -> (state, what it was asked)."""

    def __init__(self, jobs: dict[str, tuple[str, TrainJob]]) -> None:
        self.jobs = {name: (state, command(order)) for name, (state, order) in jobs.items()}
        self.submitted: list[str] = []

    def submission_ids(self) -> list[str]:
        return list(self.jobs)

    def state(self, submission_id: str) -> JobState:
        state, asked = self.jobs[submission_id]
        return JobState(state, "", asked)

    def submit(
        self,
        submission_id: str,
        entrypoint: str,
        env_vars: dict[str, str],
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.submitted.append(submission_id)

    def metadata(self, submission_id: str) -> Mapping[str, str]:
        raise AssertionError("whose a job is does not matter here")

    def under_way(self, submission_id: str) -> str:
        return "tasks that run:\n  none\n"

    def log_lines(self, submission_id: str, left_s: Callable[[], float]) -> Any:
        raise AssertionError("nothing is followed here")

    def stop(self, submission_id: str) -> None:
        raise AssertionError("nothing is stopped here")


def command(order: TrainJob) -> str:
    return entrypoint(JOB, "rl.grpo.job", order.model_dump_json())


@pytest.mark.parametrize("state", ["SUCCEEDED", "RUNNING", "PENDING"])
def test_another_training_s_job_is_never_passed_off_as_this_one_s(order: TrainJob, state: str) -> None:
    jobs = Known({"r-train-1": (state, order)})
    other = changed(order, learning_rate=0.5, seed=7, max_steps=order.train.grpo.max_steps + 20)
    with pytest.raises(OtherSettings) as raised:
        submit_once(jobs, "r-train", command(other), takes_up)
    assert f"train.grpo.learning_rate is 0.5, was {order.train.grpo.learning_rate}" in str(raised.value)
    assert "train.grpo.seed is 7, was " in str(raised.value)
    assert "max_steps is" not in str(raised.value), "more steps alone are welcome"
    assert not jobs.submitted


def test_the_same_training_is_taken_up_and_a_longer_one_is_the_next_attempt(order: TrainJob) -> None:
    longer = changed(order, max_steps=order.train.grpo.max_steps + 20)
    jobs = Known({"r-train-1": ("SUCCEEDED", order)})
    assert submit_once(jobs, "r-train", command(order), takes_up) == "r-train-1"
    assert submit_once(jobs, "r-train", command(longer), takes_up) == "r-train-2"
    assert jobs.submitted == ["r-train-2"]
    both = Known({"r-train-1": ("SUCCEEDED", order), "r-train-2": ("RUNNING", longer)})
    assert submit_once(both, "r-train", command(longer), takes_up) == "r-train-2"
    with pytest.raises(OtherSettings, match="max_steps is 160, was 180"):
        submit_once(both, "r-train", command(order), takes_up)


def test_a_shorter_job_that_still_runs_is_waited_for_by_nobody_who_wants_more(order: TrainJob) -> None:
    jobs = Known({"r-train-1": ("RUNNING", order)})
    with pytest.raises(
        OtherSettings, match="job r-train-1 is RUNNING with other settings; wait for its end or stop it"
    ):
        submit_once(jobs, "r-train", command(changed(order, max_steps=180)), takes_up)


def test_a_job_that_failed_binds_nobody(order: TrainJob) -> None:
    jobs = Known({"r-train-1": ("FAILED", order)})
    assert submit_once(jobs, "r-train", command(changed(order, seed=7)), takes_up) == "r-train-2"


def test_a_run_with_checkpoints_is_refused_other_settings_before_anything_starts(order: TrainJob) -> None:
    context, _ = recording()
    story, news = JobStory(), JobNews(context, order)
    assert order_training.fn(context, order.train, MAZES) == order
    for event in (Resumed(step=0, path=""), Saved(kind="export", step=20, path="/e", sha256={})):
        story.hear(PREFIX + event.model_dump_json(), news)
    other = changed(order, learning_rate=0.5).train
    assert order_training.fn(context, other, MAZES).train == other, (
        "nothing goes on from an attempt without checkpoints"
    )
    story.hear(PREFIX + Saved(kind="checkpoint", step=20, path="/c", sha256={}).model_dump_json(), news)
    with pytest.raises(OtherSettings, match=r"learning_rate is 0\.5"):
        order_training.fn(context, other, MAZES)
    longer = changed(order, max_steps=180).train
    assert order_training.fn(context, longer, MAZES).train.grpo.max_steps == 180


def test_other_mazes_are_other_settings(order: TrainJob) -> None:
    with pytest.raises(OtherSettings, match="train_mazes_sha256 is u, was t"):
        takes_up(order.model_dump_json(), order.model_copy(update={"train_mazes_sha256": "u"}).model_dump_json())
    document = order.train.model_dump()
    document["data"]["num_train_mazes"] += 1
    other = order.model_copy(update={"train": TrainSettings.model_validate(document)})
    with pytest.raises(OtherSettings, match=r"train\.data\.num_train_mazes is "):
        takes_up(order.model_dump_json(), other.model_dump_json())


def test_each_attempt_s_figures_evaluations_and_settings_are_a_run_of_their_own(order: TrainJob) -> None:
    context, events = recording()
    story, news = JobStory(), JobNews(context, order)
    for event in (
        Resumed(attempt=1, step=0, path=""),
        Metrics(step=13, values={"loss": 57.0}),
        Resumed(attempt=2, step=12, path="/c/12"),
        Metrics(step=13, values={"loss": 20.0}),
        Evaluated(report=report(16, 3)),
    ):
        story.hear(PREFIX + event.model_dump_json(), news)
    assert story.attempt == 2
    assert isinstance(context.run, RecordingLog)
    first, second = (context.run.children[f"training-{number}"] for number in (1, 2))
    assert events.count(f"params {len(dotted(order.model_dump(mode='json')))}") == 2
    assert "evaluations/step_000016.json" in second.texts
    assert "evaluations/step_000016.json" not in first.texts
    assert [event for event in events if event.startswith("metrics")] == ["metrics 13", "metrics 13", "metrics 16"]


def test_what_pictures_show_of_each_step_is_kept_and_can_be_read_again(order: TrainJob) -> None:
    story, sinks = JobStory(), JobNews(recording()[0])
    told = {"timing/step": 50.0, "reward/avg_raw_reward": 0.5, "policy/lr": 1e-5}
    for event in (
        Resumed(step=0, path=""),
        Evaluated(report=report(0, 20)),
        Metrics(step=1, values=told),
    ):
        story.hear(PREFIX + event.model_dump_json(), sinks)
    run = trained_run(order, MAZES, story)
    assert run.numbers[1] == {"timing/step": 50.0, "reward/avg_raw_reward": 0.5}
    assert TrainedRun.model_validate_json(run.model_dump_json()) == run
