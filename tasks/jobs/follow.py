"""Following a training job: what its log lines mean, gathered into a record. Pure but for the sinks it is given."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from rl.events import Checked, Evaluated, Event, Fault, Metrics, Probed, Progress, Resumed, Saved, Stored, parse_line
from rl.maze.score import EvalReport
from tasks.errors import LogBrokeOff, TrainingJobFailed, TrainingStalled
from tasks.jobs.api import JobsClient, JobState
from tasks.records import ExportRef

MAX_REREADS = 3
"""Times that the log of a job that is over is taken up again to hear its end."""
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Sinks(Protocol):
    """Where a followed job's news goes."""

    def line(self, text: str) -> None: ...

    def metrics(self, step: int, values: Mapping[str, float]) -> None: ...

    def progress(self, done: int, total: int, text: str) -> None: ...

    def evaluation(self, report: EvalReport) -> None: ...


@dataclass
class JobStory:
    """What a job has said so far. Hearing the same log again changes nothing."""

    submission_id: str = ""
    evaluations: dict[int, EvalReport] = field(default_factory=dict)
    exports: dict[int, ExportRef] = field(default_factory=dict)
    checkpoint_steps: set[int] = field(default_factory=set)
    resumed_from_step: int = 0
    last_step: int = 0
    faults: list[Fault] = field(default_factory=list)
    probes: dict[int, Probed] = field(default_factory=dict)
    checks: dict[str, Checked] = field(default_factory=dict)
    stored: dict[str, Stored] = field(default_factory=dict)
    num_lines: int = 0
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=20))

    def hear(self, line: str, sinks: Sinks) -> None:
        """Take in one log line."""
        self.num_lines += 1
        event = parse_line(line)
        if event is None:
            if text := _ANSI.sub("", line).strip():
                self.last_lines.append(text)
                sinks.line(text)
            return
        self._take(event, sinks)

    def why_it_ended(self, submission_id: str, state: JobState) -> str:
        """One paragraph: the first fault that the job reported, or its last lines."""
        if self.faults:
            cause = f"{self.faults[0].boundary}: {self.faults[0].message}"
        else:
            cause = "\n".join(["it reported no fault; its last lines:", *self.last_lines])
        return f"job {submission_id} is {state.status} at step {self.last_step}; {cause}"

    def _take(self, event: Event, sinks: Sinks) -> None:
        match event:
            case Progress():
                self.last_step = max(self.last_step, event.done)
                sinks.progress(event.done, event.total, event.text)
            case Metrics():
                sinks.metrics(event.step, event.values)
            case Evaluated():
                report = event.report
                self.evaluations[report.step] = report
                sinks.metrics(report.step, report.metrics())
                sinks.evaluation(report)
            case Saved(kind="export"):
                self.exports[event.step] = ExportRef(step=event.step, path=event.path, sha256=event.sha256)
            case Saved():
                self.checkpoint_steps.add(event.step)
            case Resumed():
                self.resumed_from_step = event.step
            case Probed():
                self.probes[event.number] = event
            case Checked():
                self.checks[event.name] = event
            case Stored():
                self.stored[event.path] = event
            case Fault():
                self.faults.append(event)
                sinks.line(f"{event.boundary}: {event.message}")


def follow_job(
    jobs: JobsClient,
    submission_id: str,
    sinks: Sinks,
    stall_timeout_s: float,
    reconnect_s: float,
    sleep: Callable[[float], object] = time.sleep,
    story: JobStory | None = None,
) -> JobStory:
    """Follow a job to its end, taking up its log again whenever the connection breaks.

    Whoever hands in a ``story`` has it when the job fails, too. Raises TrainingJobFailed with the job's own words,
    TrainingStalled after ``stall_timeout_s`` of silence; a stalled job is stopped first.
    """
    story = JobStory() if story is None else story
    rereads_left = MAX_REREADS
    while True:
        broke_off = False
        try:
            heard = story.num_lines
            for line in islice(jobs.log_lines(submission_id, stall_timeout_s), heard, None):
                story.hear(line, sinks)
        except LogBrokeOff:
            broke_off = True
        except TimeoutError as error:
            jobs.stop(submission_id)
            raise TrainingStalled(
                f"job {submission_id} said nothing for {stall_timeout_s:g} s at step {story.last_step} and was "
                "stopped; look at the engine log in the run's logs folder, then run again: it goes on from its last "
                "checkpoint"
            ) from error
        state = jobs.state(submission_id)
        if state.is_final and broke_off and rereads_left:
            # It ended while nobody listened: its last words are in the log.
            rereads_left -= 1
        elif state.status == "SUCCEEDED":
            return story
        elif state.is_final:
            raise TrainingJobFailed(story.why_it_ended(submission_id, state))
        sleep(reconnect_s)
