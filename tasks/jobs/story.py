"""What a followed job has said so far, and where its news goes. Pure but for the sinks it is given."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rl.events import (
    PREFIX,
    Checked,
    Completed,
    Evaluated,
    Event,
    Fault,
    Metrics,
    Probed,
    Progress,
    Resumed,
    Rollouts,
    Saved,
    Stored,
    Wrote,
    parse_line,
)
from rl.maze.score import EvalReport
from tasks.jobs.api import JobState
from tasks.records import ExportRef

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Sinks(Protocol):
    """Where a followed job's news goes."""

    def line(self, text: str) -> None: ...

    def metrics(self, step: int, values: Mapping[str, float]) -> None: ...

    def progress(self, done: int, total: int, text: str) -> None: ...

    def evaluation(self, report: EvalReport) -> None: ...

    def saved(self, event: Saved) -> None: ...

    def event(self, document: str) -> None:
        """Every event, as its JSON, before what it means is told."""
        ...

    def wrote(self, name: str, text: str) -> None:
        """A small file of the job's."""
        ...

    def rollouts(self, sample: Rollouts) -> None:
        """Some of a step's episodes."""
        ...

    def fault(self, fault: Fault) -> None: ...

    def attempt(self, begun: Resumed) -> None:
        """What comes now is of this attempt at training; of one that is over it is no news."""
        ...

    def inherited(self, numbers: Mapping[int, Mapping[str, float]], evaluations: Mapping[int, EvalReport]) -> None:
        """By step, what led to where the attempt goes on from: its curve begins with it."""
        ...

    def completed(self) -> None:
        """The attempt has done all that it was asked for."""
        ...


@dataclass
class JobStory:
    """What a job has said so far. The same heard again changes nothing; what a later attempt says replaces it."""

    submission_id: str = ""
    evaluations: dict[int, EvalReport] = field(default_factory=dict)
    exports: dict[int, ExportRef] = field(default_factory=dict)
    checkpoint_steps: set[int] = field(default_factory=set)
    resumed_from_step: int = 0
    attempt: int = 0
    """Number of the training job's attempt that tells now."""
    begun: bool = False
    """Whether that is the job's own attempt, and none that it tells of."""
    last_step: int = 0
    faults: list[Fault] = field(default_factory=list)
    num_earlier_faults: int = 0
    """Of the faults, those of attempts before this one."""
    probes: dict[int, Probed] = field(default_factory=dict)
    checks: dict[str, Checked] = field(default_factory=dict)
    stored: dict[str, Stored] = field(default_factory=dict)
    end: JobState | None = None
    """How the job ended; None while it goes on, and where it was given up."""
    num_lines: int = 0
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    rollouts: dict[int, Rollouts] = field(default_factory=dict)
    """Step -> some of its episodes."""
    told: dict[int, dict[str, object]] = field(default_factory=dict)
    """Step -> what the sinks know of it from this attempt: the evaluation, what was saved."""
    numbers: dict[int, dict[str, float]] = field(default_factory=dict)
    """Step -> the numbers that the sinks know of it from this attempt."""

    def hear(self, line: str, sinks: Sinks) -> bool:
        """Take in one log line; whether it tells of progress. What a job prints does not, nor what it survives."""
        self.num_lines += 1
        event = parse_line(line)
        if event is None:
            if text := _ANSI.sub("", line).strip():
                self.last_lines.append(text)
                sinks.line(text)
            return False
        sinks.event(line.removeprefix(PREFIX))
        self._take(event, sinks)
        return not isinstance(event, Fault)

    @property
    def fatal(self) -> list[Fault]:
        """What the attempt itself says ended it, the first cause first."""
        return [fault for fault in self.faults[self.num_earlier_faults :] if fault.fatal]

    @property
    def held_step(self) -> int:
        """The newest step that a checkpoint holds."""
        return max(self.checkpoint_steps, default=0)

    def why_it_ended(self, submission_id: str, state: JobState) -> str:
        """One paragraph: the fault that ended the job, or its last lines, and what it had survived before."""
        if self.fatal:
            cause = f"{self.fatal[0].boundary}: {self.fatal[0].message}"
        else:
            said = rays_sentence(state)
            told = f"it reported no fault that ended it{f', Ray says: {said}' if said else ''}"
            cause = "\n".join([told, "its last lines:", *self.last_lines])
        own = self.faults[self.num_earlier_faults :]
        survived = [f"{fault.boundary}: {fault.message}" for fault in own if not fault.fatal]
        history = f"\nbefore that it survived: {'; '.join(survived)}" if survived else ""
        return f"job {submission_id} is {state.status} at step {self.last_step}; {cause}{history}"

    def _take(self, event: Event, sinks: Sinks) -> None:
        match event:
            case Progress():
                self.last_step = max(self.last_step, event.done)
                sinks.progress(event.done, event.total, event.text)
            case Metrics():
                self._tell_numbers(event.step, event.values, sinks)
            case Evaluated():
                report = event.report
                self.evaluations[report.step] = report
                self._tell_numbers(report.step, report.metrics(), sinks)
                if self._is_news(report.step, "evaluation", report):
                    sinks.evaluation(report)
            case Saved():
                if event.kind == "export":
                    self.exports[event.step] = ExportRef(step=event.step, path=event.path, sha256=event.sha256)
                else:
                    self.checkpoint_steps.add(event.step)
                if self._is_news(event.step, event.kind, event):
                    sinks.saved(event)
            case Resumed():
                self._begin_attempt(event, sinks)
            case Probed():
                self.probes[event.number] = event
            case Checked():
                self.checks[event.name] = event
            case Stored():
                self.stored[event.path] = event
            case Completed():
                sinks.completed()
            case Rollouts():
                self.rollouts[event.step] = event
                sinks.rollouts(event)
            case Wrote():
                sinks.wrote(event.name, event.text)
            case Fault():
                self.faults.append(event)
                sinks.fault(event)

    def _begin_attempt(self, event: Resumed, sinks: Sinks) -> None:
        """What was told of later steps belongs to a training that was not gone on with; what led here is told again:
        this attempt's curve begins with it."""
        self.resumed_from_step, self.attempt, self.last_step = event.step, event.attempt, event.step
        self.begun = not event.is_over
        self.evaluations = {step: report for step, report in self.evaluations.items() if step <= event.step}
        self.exports = {step: export for step, export in self.exports.items() if step <= event.step}
        self.checkpoint_steps = {step for step in self.checkpoint_steps if step <= event.step}
        self.rollouts = {step: sample for step, sample in self.rollouts.items() if step <= event.step}
        self.numbers = {step: values for step, values in self.numbers.items() if step <= event.step}
        self.told = {step: known for step, known in self.told.items() if step <= event.step}
        self.num_earlier_faults = len(self.faults)
        sinks.attempt(event)
        sinks.inherited(dict(sorted(self.numbers.items())), dict(sorted(self.evaluations.items())))

    def _tell_numbers(self, step: int, values: Mapping[str, float], sinks: Sinks) -> None:
        known = self.numbers.setdefault(step, {})
        news = {name: value for name, value in values.items() if name not in known or known[name] != value}
        known |= news
        if news:
            sinks.metrics(step, news)

    def _is_news(self, step: int, name: str, what: object) -> bool:
        """Whether the sinks do not know it yet from this attempt."""
        known = self.told.setdefault(step, {})
        is_news = name not in known or known[name] != what
        known[name] = what
        return is_news


def rays_sentence(state: JobState) -> str:
    """What Ray says of a job's end, without the announcement of the log that follows it."""
    return state.message.partition("\n")[0].partition(", last available logs")[0]
