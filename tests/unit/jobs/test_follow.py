"""One clock, one story: what counts as news of a job, and when its log is whole. Ray Jobs is a script in a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rl.events import PREFIX, Evaluated, Fault, Progress
from rl.maze.score import EvalReport, Outcome
from tasks.errors import ClusterUnreachable, DoesNotStop, LogBrokeOff, TrainingStalled, UnknownJobState
from tasks.jobs.api import JobState
from tasks.jobs.follow import FollowLimits, follow_job
from tasks.jobs.news import JobNews
from tasks.jobs.submit import followed_to_its_end, submit_once
from tests.recording import recording
from tests.unit.samples import RULES

LIMITS = FollowLimits(stall_timeout_s=600, reconnect_s=5)


class Clock:
    """Moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


class Script:
    """Ray Jobs whose log grows by the script: ``(lines, how the connection ends, state afterwards)``.

    A connection gives the whole log so far, as Ray's does; the last entry stays, and adds nothing more.
    """

    def __init__(self, *connections: tuple[list[str], str, str]) -> None:
        self._left = list(connections)
        self._log: list[str] = []
        self.state_word = connections[0][2]
        self.num_connections, self.stopped = 0, False
        self.after_stop = "STOPPED"

    def submission_ids(self) -> list[str]:
        return ["run-1"]

    def metadata(self, submission_id: str) -> dict[str, str]:
        return {}

    def submit(self, submission_id: str, entrypoint: str, env_vars: dict[str, str], metadata: object = None) -> None:
        raise AssertionError("nothing is submitted here")

    def state(self, submission_id: str) -> JobState:
        if self.state_word == "AWAY":
            raise ClusterUnreachable("the head is away")
        return JobState(self.state_word, "")

    def under_way(self, submission_id: str) -> str:
        return "tasks that run:\n  none\n"

    def log_lines(self, submission_id: str, left_s: Callable[[], float]) -> Iterator[str]:
        self.num_connections += 1
        said, end, state = self._left.pop(0)
        self._left = self._left or [([], end, state)]
        self._log += said
        yield from self._log
        self.state_word = state
        if end == "breaks":
            raise LogBrokeOff("cut")
        if end == "silence":
            raise TimeoutError

    def stop(self, submission_id: str) -> None:
        self.stopped = True
        if self.state_word in ("RUNNING", "PENDING"):
            self.state_word = self.after_stop
            self._left = [([], "closes", self.after_stop)]
        if self.state_word == "AWAY":
            raise ClusterUnreachable("the head is away")


def evaluated(step: int) -> str:
    outcomes = (Outcome(seed=0, solved=True, actions="S", unparsable_replies=0),)
    report = EvalReport(step=step, rules=RULES, model_id="m", outcomes=outcomes)
    return PREFIX + Evaluated(report=report).model_dump_json()


def test_a_hung_job_behind_a_proxy_that_closes_idle_connections_is_stopped_at_the_limit() -> None:
    jobs, clock = Script((["hello"], "closes", "RUNNING"), ([], "closes", "RUNNING")), Clock()
    with pytest.raises(TrainingStalled, match="made no progress for 600 s"):
        follow_job(jobs, "j", JobNews(recording()[0]), LIMITS, sleep=clock.sleep, clock=clock)
    assert jobs.stopped
    assert 600 <= clock.now_s <= 660
    # Each connection has the log read from its start: the pauses grow.
    assert clock.slept[:5] == [5, 10, 20, 40, 60]
    assert jobs.num_connections < 20


def step(done: int) -> str:
    return PREFIX + Progress(done=done, total=400, text="").model_dump_json()


def test_progress_starts_the_clock_anew() -> None:
    connections = [([step(number)], "closes", "RUNNING") for number in range(300)]
    jobs, clock = Script(*connections, ([], "closes", "SUCCEEDED")), Clock()
    assert follow_job(jobs, "j", JobNews(recording()[0]), LIMITS, sleep=clock.sleep, clock=clock).num_lines == 300
    assert clock.now_s > 2 * LIMITS.stall_timeout_s


def test_a_job_that_prints_without_making_progress_has_stalled() -> None:
    """An engine that waits for requests prints its throughput every ten seconds, for ever."""
    fault = PREFIX + Fault(boundary="engine", message="a request was dropped").model_dump_json()
    connections = [(["throughput: 0.0 tokens/s", fault], "closes", "RUNNING") for _ in range(300)]
    jobs, clock = Script(([step(3)], "closes", "RUNNING"), *connections), Clock()
    with pytest.raises(TrainingStalled, match=r"made no progress for 600 s at step 3 and was stopped\. What it did"):
        follow_job(jobs, "j", JobNews(recording()[0]), LIMITS, sleep=clock.sleep, clock=clock)
    assert 600 <= clock.now_s <= 605 + 2


def test_a_job_that_prints_without_a_pause_is_stopped_too() -> None:
    clock = Clock()

    class Babbling(Script):
        def log_lines(self, submission_id: str, left_s: Callable[[], float]) -> Iterator[str]:
            while not self.stopped:
                clock.now_s += 1
                yield "waiting"

    jobs = Babbling(([], "closes", "RUNNING"))
    with pytest.raises(TrainingStalled, match="made no progress for 600 s"):
        follow_job(jobs, "j", JobNews(recording()[0]), LIMITS, sleep=clock.sleep, clock=clock)
    assert 600 <= clock.now_s <= 662


def test_a_job_that_does_not_stop_is_told() -> None:
    jobs, clock = Script((["hello"], "closes", "RUNNING")), Clock()
    jobs.after_stop = "RUNNING"
    with pytest.raises(DoesNotStop, match="and is RUNNING although it was told to stop"):
        follow_job(jobs, "j", JobNews(recording()[0]), LIMITS, sleep=clock.sleep, clock=clock)


def test_a_log_that_closed_early_is_read_again_once_the_job_is_over() -> None:
    first = [evaluated(0), "hello", evaluated(4)]
    jobs = Script((first, "closes", "SUCCEEDED"), ([evaluated(8), evaluated(12)], "closes", "SUCCEEDED"))
    story = follow_job(jobs, "j", JobNews(recording()[0]), LIMITS, sleep=lambda seconds: None)
    assert sorted(story.evaluations) == [0, 4, 8, 12]


def test_a_job_that_ended_while_it_was_silent_has_not_stalled() -> None:
    jobs = Script((["hello"], "silence", "SUCCEEDED"), ([], "closes", "SUCCEEDED"))
    assert follow_job(jobs, "j", JobNews(recording()[0]), LIMITS, sleep=lambda seconds: None).num_lines == 1
    assert not jobs.stopped


def test_a_state_of_an_unknown_word_ends_within_the_limit_and_is_told() -> None:
    jobs, clock = Script((["hello"], "closes", "SUSPENDED")), Clock()
    with pytest.raises(TrainingStalled, match="Ray calls it SUSPENDED, a word that this version does not know"):
        follow_job(jobs, "j", JobNews(recording()[0]), LIMITS, sleep=clock.sleep, clock=clock)
    with pytest.raises(UnknownJobState, match="job run-1 is SUSPENDED"):
        submit_once(jobs, "run", "true")


def test_what_a_sink_raises_is_never_taken_for_silence() -> None:
    class Late(JobNews):
        def progress(self, done: int, total: int, text: str) -> None:
            raise TimeoutError("the page is away")

    jobs = Script(([PREFIX + Progress(done=1, total=2, text="").model_dump_json()], "closes", "RUNNING"))
    with pytest.raises(TimeoutError, match="the page is away"):
        follow_job(jobs, "j", Late(recording()[0]), LIMITS)


def test_a_stop_that_fails_is_a_note_on_what_came_first_and_is_tried_whatever_the_state_says() -> None:
    class Interrupted(JobNews):
        def line(self, text: str) -> None:
            jobs.state_word = "AWAY"
            raise KeyboardInterrupt

    jobs = Script((["hello"], "closes", "RUNNING"))
    with pytest.raises(KeyboardInterrupt) as raised:
        followed_to_its_end(jobs, "j", Interrupted(recording()[0]), LIMITS)
    assert jobs.stopped
    assert raised.value.__notes__ == [
        "the state of job j is not known: the head is away",
        "job j could not be stopped and may still run: the head is away",
    ]
