"""Following a job's log: a recording fake stands in for Ray Jobs; nothing else is faked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from flows.deployments import load_settings
from rl.events import (
    PREFIX,
    Completed,
    Evaluated,
    EventLog,
    Fault,
    Metrics,
    OtherVersion,
    Progress,
    Resumed,
    Rollouts,
    Saved,
    parse_line,
)
from rl.grpo.settings import TrainJob
from rl.maze.score import EvalReport, Outcome
from tasks.errors import LogBrokeOff, TrainingJobFailed, TrainingStalled
from tasks.jobs.api import JobState
from tasks.jobs.follow import MAX_REREADS, FollowLimits, follow_job
from tasks.jobs.story import JobStory
from tasks.jobs.submit import followed_to_its_end, limits_of, submit_once
from tasks.settings import JobSettings
from tasks.training.train import trained_run
from tests.unit.samples import MAZES, RULES


def report(step: int, num_solved: int, num_mazes: int = 4) -> EvalReport:
    outcomes = tuple(
        Outcome(seed=i, solved=i < num_solved, actions="RS", unparsable_replies=0) for i in range(num_mazes)
    )
    return EvalReport(step=step, rules=RULES, model_id="m", outcomes=outcomes)


def lines(*events: object) -> list[str]:
    return [PREFIX + event.model_dump_json() for event in events]  # type: ignore[attr-defined]


LIMITS = FollowLimits(stall_timeout_s=60, reconnect_s=2)


class RecordingSinks:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def line(self, text: str) -> None:
        self.heard.append(text)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.heard.append(("metrics", step, dict(values)))

    def progress(self, done: int, total: int, text: str) -> None:
        self.heard.append(("progress", done, total))

    def evaluation(self, report: EvalReport) -> None:
        self.heard.append(("evaluation", report.step, report.num_solved))

    def saved(self, event: Saved) -> None:
        self.heard.append((event.kind, event.step))

    def event(self, document: str) -> None:
        """Each is recorded by what it means."""

    def wrote(self, name: str, text: str) -> None:
        self.heard.append(("wrote", name, text))

    def rollouts(self, sample: Rollouts) -> None:
        self.heard.append(("rollouts", sample.step, len(sample.rollouts)))

    def fault(self, fault: Fault) -> None:
        self.heard.append(("fault", fault.message))

    def attempt(self, begun: Resumed) -> None:
        self.heard.append(("attempt", begun.attempt, begun.step))

    def inherited(self, numbers: Mapping[int, Mapping[str, float]], evaluations: Mapping[int, EvalReport]) -> None:
        if numbers or evaluations:
            solved = {step: report.num_solved for step, report in evaluations.items()}
            self.heard.append(("inherited", {step: dict(values) for step, values in numbers.items()}, solved))

    def completed(self) -> None:
        self.heard.append("completed")


class FakeJobs:
    """Ray Jobs with a script: each connection delivers lines, then the job is in the next state.

    The last connection and the last state are given again to whoever asks again.
    """

    def __init__(self, connections: list[list[str]], states: list[str], known: Mapping[str, str] | None = None) -> None:
        self.connections, self.states, self.known = list(connections), list(states), dict(known or {})
        self.events: list[str] = []

    def submission_ids(self) -> list[str]:
        return list(self.known)

    def metadata(self, submission_id: str) -> dict[str, str]:
        return {}

    def submit(self, submission_id: str, entrypoint: str, env_vars: dict[str, str], metadata: object = None) -> None:
        self.events.append(f"submit {submission_id}")

    def state(self, submission_id: str) -> JobState:
        return JobState(
            self.known.get(submission_id) or (self.states.pop(0) if len(self.states) > 1 else self.states[0]),
            "",
            entrypoint="true",
        )

    def under_way(self, submission_id: str) -> str:
        return "tasks that run:\n  none\n"

    def log_lines(self, submission_id: str, left_s: Callable[[], float]) -> Iterator[str]:
        self.events.append("connect")
        for line in self.connections.pop(0) if len(self.connections) > 1 else self.connections[0]:
            if line == "SILENCE":
                raise TimeoutError
            if line == "BREAK":
                raise LogBrokeOff("cut")
            yield line

    def stop(self, submission_id: str) -> None:
        self.events.append(f"stop {submission_id}")
        self.known[submission_id] = "STOPPED"


def test_an_event_survives_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sent = [
        Progress(done=1, total=2, text="x"),
        Metrics(step=1, values={"loss": 0.5}),
        Evaluated(report=report(1, 2)),
        Saved(kind="export", step=1, path="/p", sha256={"a": "b"}),
        Resumed(attempt=2, step=1, path=""),
        Completed(),
        Fault(boundary="b", message="line\nand \u2028 and \u0085", fatal=True),
    ]
    log = EventLog(tmp_path / "run" / "events.jsonl")
    for event in sent:
        log.emit(event)
    printed = capsys.readouterr().out.split("\n")
    assert [event for event in map(parse_line, printed) if event] == sent
    assert (tmp_path / "run" / "events.jsonl").read_bytes().count(b"\n") == len(sent)
    assert log.earlier().events == tuple(sent)


@pytest.mark.parametrize(
    "text",
    [
        "Loading weights",
        PREFIX + '{"kind":"progress","done":1,"tot',
        f"  raise ValueError('{PREFIX}')",
        f"(pid=7) {lines(Progress(done=1, total=2, text=''))[0]}",
        lines(Progress(done=1, total=2, text=""))[0] + " and more",
        PREFIX,
    ],
)
def test_what_does_not_begin_with_the_marker_and_parse_is_text(text: str) -> None:
    assert parse_line(text) is None
    sinks = RecordingSinks()
    JobStory().hear(text, sinks)
    assert sinks.heard == [text.strip()]


BEFORE_RULES = '{"kind":"evaluated","report":{"step":4,"eval_set_sha256":"e","model_id":"m","outcomes":[]}}'
"""An evaluation as it was told before it carried its rules."""


@pytest.mark.parametrize("event", [BEFORE_RULES, '{"kind":"evaluated"}', '{"kind":"seen tomorrow","step":4}'])
def test_a_whole_event_of_another_version_is_refused_and_never_passed_over(tmp_path: Path, event: str) -> None:
    with pytest.raises(
        OtherVersion, match=r"the job's log: an event that this version does not read .* another run_name"
    ):
        JobStory().hear(PREFIX + event, RecordingSinks())
    file = tmp_path / "events.jsonl"
    file.write_text(lines(Progress(done=1, total=2, text=""))[0].removeprefix(PREFIX) + f"\n{event}\n")
    with pytest.raises(OtherVersion, match=r"events\.jsonl, line 2: an event that this version does not read"):
        EventLog(file).earlier()


def test_an_event_begins_its_line_although_another_thread_is_in_the_middle_of_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    event = Progress(done=1, total=2, text="step 1")
    print("2026-11-30 | INFO | saving", end="")
    EventLog().emit(event)
    print("2026-11-30 | INFO | Finished: 'save_checkpoints'")
    heard = [parse_line(line) for line in capsys.readouterr().out.split("\n")]
    assert heard == [None, event, None, None]


def test_an_event_is_one_write_so_that_no_thread_s_line_gets_between(monkeypatch: pytest.MonkeyPatch) -> None:
    class Recording:
        def __init__(self) -> None:
            self.writes: list[str] = []

        def write(self, text: str) -> None:
            self.writes.append(text)

        def flush(self) -> None:
            pass

    out = Recording()
    monkeypatch.setattr("sys.stdout", out)
    EventLog().emit(Progress(done=1, total=2, text="step 1"))
    (written,) = out.writes
    assert written.endswith("}\n")


def test_a_broken_connection_is_taken_up_without_hearing_anything_twice() -> None:
    log = [
        *lines(Metrics(step=1, values={"loss": 1.0})),
        "hello",
        *lines(Evaluated(report=report(1, 3)), Progress(done=1, total=1, text="")),
    ]
    jobs, sinks, slept = FakeJobs([log[:2], log], ["RUNNING", "SUCCEEDED"]), RecordingSinks(), []
    story = follow_job(jobs, "j", sinks, LIMITS, sleep=slept.append)
    # The third reads the log of a job that is over, and brings nothing new.
    assert jobs.events == ["connect", "connect", "connect"]
    assert slept == [2]
    assert [entry for entry in sinks.heard if entry == "hello"] == ["hello"]
    assert next(entry for entry in sinks.heard if isinstance(entry, tuple) and entry[:2] == ("metrics", 1))[2] == {
        "loss": 1.0
    }
    assert story.evaluations[1].num_solved == 3


def test_what_a_job_said_while_nobody_listened_is_heard_although_it_is_over() -> None:
    log = ["hello", *lines(Evaluated(report=report(1, 3)))]
    jobs, sinks = FakeJobs([[log[0], "BREAK"], ["BREAK"], log], ["SUCCEEDED"]), RecordingSinks()
    story = follow_job(jobs, "j", sinks, LIMITS, sleep=lambda seconds: None)
    assert story.evaluations[1].num_solved == 3
    assert sinks.heard.count("hello") == 1


def test_a_log_that_is_gone_is_not_waited_for_once_the_job_is_over() -> None:
    jobs = FakeJobs([["BREAK"]] * (MAX_REREADS + 1), ["FAILED"])
    with pytest.raises(TrainingJobFailed, match="job j is FAILED at step 0"):
        follow_job(jobs, "j", RecordingSinks(), LIMITS, sleep=lambda seconds: None)
    assert jobs.events == ["connect"] * (MAX_REREADS + 2)


def test_a_failed_job_ends_with_the_fault_it_reported() -> None:
    log = ["loading", *lines(Fault(boundary="CannotStart", message="no GPU; bring one up", fatal=True))]
    with pytest.raises(TrainingJobFailed, match="job j is FAILED at step 0; CannotStart: no GPU; bring one up"):
        follow_job(FakeJobs([log], ["FAILED"]), "j", RecordingSinks(), LIMITS)


def test_a_job_that_died_without_a_word_ends_with_its_last_lines() -> None:
    with pytest.raises(TrainingJobFailed, match=r"(?s)it reported no fault that ended it\nits last lines:.*Killed"):
        follow_job(FakeJobs([["\x1b[31mKilled\x1b[0m"]], ["FAILED"]), "j", RecordingSinks(), LIMITS)


def test_a_silent_job_is_stopped_and_says_how_to_go_on() -> None:
    log = [*lines(Progress(done=3, total=9, text=""))]
    jobs, sinks = FakeJobs([[*log, "SILENCE"], [*log, "Current thread 0x7f21"]], ["RUNNING"]), RecordingSinks()
    with pytest.raises(TrainingStalled, match="made no progress for 60 s at step 3 and was stopped"):
        follow_job(jobs, "j", sinks, LIMITS)
    # What it did is asked before it is stopped, and what it says as it ends is heard.
    assert jobs.events == ["connect", "stop j", "connect"]
    assert sinks.heard[-2:] == [("wrote", "under_way.txt", "tasks that run:\n  none\n"), "Current thread 0x7f21"]


def test_whoever_stops_following_stops_the_job() -> None:
    class Cancelled(BaseException): ...

    class Interrupted(RecordingSinks):
        def line(self, text: str) -> None:
            raise Cancelled

    jobs = FakeJobs([["hello"]], ["RUNNING"])
    settings = JobSettings(project_dir="/p", python="python")
    with pytest.raises(Cancelled):
        followed_to_its_end(jobs, "j", Interrupted(), limits_of(settings))
    assert jobs.events == ["connect", "stop j"]


@pytest.mark.parametrize(
    ("known", "wanted", "submits"),
    [
        ({}, "run-1", True),
        ({"run-1": "RUNNING"}, "run-1", False),
        ({"run-1": "SUCCEEDED"}, "run-1", False),
        ({"run-1": "FAILED"}, "run-2", True),
        ({"run-1": "FAILED", "run-2": "STOPPED"}, "run-3", True),
        ({"run-1": "FAILED", "run-2": "RUNNING"}, "run-2", False),
    ],
)
def test_a_job_is_submitted_once_and_found_again_by_name(known: dict[str, str], wanted: str, submits: bool) -> None:
    jobs = FakeJobs([], ["PENDING"], known)
    assert submit_once(jobs, "run", "true") == wanted
    assert jobs.events == ([f"submit {wanted}"] if submits else [])


def test_the_record_lists_steps_in_order_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECT_DIR", str(Path.cwd()))
    settings = load_settings("retrain/hyperpod", {})
    story = JobStory()
    for line in lines(Evaluated(report=report(4, 2)), Evaluated(report=report(0, 1)), Evaluated(report=report(4, 2))):
        story.hear(line, RecordingSinks())
    order = TrainJob(run_name="r", train=settings.train, train_mazes_sha256="t")
    run = trained_run(order, MAZES, story)
    assert [entry.step for entry in run.evaluations] == [0, 4]
