"""What a job tells the orchestrator: one JSON line an event, in its log and in a file beside its run.

The job's log is the one channel that every Ray cluster offers (a shared file system may be out of the
orchestrator's reach), and it can be read again from the start: events carry their step, so whoever follows a
second time knows what it already has. The file outlives the job, and holds what every attempt of a run told.

In a training job's log stand, in this order:

1. What earlier attempts told, but their progress: each attempt's ``Resumed``, marked as over, then its events, also
   those beyond the checkpoint that the next one took up. Whoever follows lets go of these at the next ``Resumed``.
2. ``Resumed`` with this attempt's number, also where it starts with step 0. What follows is this attempt's own.
3. ``Completed``, where it did all that it was asked for.
4. At its end the attempt's numbers, evaluations and saves once more, as the file has them: equal to what was told
   before, unless the log lost a line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rl.maze.score import EvalReport, Outcome

PREFIX = "@event "


class OtherVersion(ValueError):
    """An event in words that this version does not know: to pass it over would lose what it says."""


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Progress(_Event):
    """``done`` of ``total`` units of the job's main loop."""

    kind: Literal["progress"] = "progress"
    done: int
    total: int
    text: str


class Metrics(_Event):
    """Numbers of one training step."""

    kind: Literal["metrics"] = "metrics"
    step: int
    values: dict[str, float]


class Evaluated(_Event):
    """The evaluation mazes were played at ``report.step``."""

    kind: Literal["evaluated"] = "evaluated"
    report: EvalReport


class Saved(_Event):
    """A checkpoint or an export is complete on disk."""

    kind: Literal["checkpoint", "export"]
    step: int
    path: str
    sha256: dict[str, str]
    """File name -> SHA-256, for the files that later stages rely on."""


class Resumed(_Event):
    """An attempt begins, with step 0 or after the checkpoint that it goes on from."""

    kind: Literal["resumed"] = "resumed"
    attempt: int = 1
    """Counts, from 1, this run's jobs that began to train."""
    step: int
    path: str
    is_over: bool = False
    """Whether it has ended: a later attempt tells of it."""


class Completed(_Event):
    """The attempt has trained, evaluated and exported all that it was asked for."""

    kind: Literal["completed"] = "completed"


class Fault(_Event):
    """Something that went wrong and was survived, or that ends the job."""

    kind: Literal["fault"] = "fault"
    boundary: str
    message: str
    fatal: bool = False
    """Whether it ends the job."""


class Probed(_Event):
    """The training side's answer to one probe conversation."""

    kind: Literal["probed"] = "probed"
    number: int
    text: str
    logprobs: tuple[float, ...]
    """One per generated token, natural logarithm."""


class Checked(_Event):
    """One thing that the run relies on, as a job on the cluster found it."""

    kind: Literal["checked"] = "checked"
    name: str
    holds: bool
    found: str
    remedy: str = ""
    """What to do where it does not hold."""


class Stored(_Event):
    """A folder of a run on the shared file system, as clean-up found it."""

    kind: Literal["stored"] = "stored"
    path: str
    size_bytes: int
    removed: bool


class Wrote(_Event):
    """A small file of the job's, which its nodes alone can read: what SkyRL made of the settings, what is installed."""

    kind: Literal["wrote"] = "wrote"
    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    text: str = Field(max_length=200_000)


class Rollout(BaseModel):
    """One episode of a training step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: Outcome
    reward: float
    advantage: float | None
    """Of each of its tokens; None where none of them counts."""


class Rollouts(_Event):
    """Some groups of a training step's episodes, to be read: those of a maze stand together."""

    kind: Literal["rollouts"] = "rollouts"
    step: int
    rollouts: tuple[Rollout, ...]


Event = Annotated[
    Progress | Metrics | Evaluated | Saved | Resumed | Completed | Fault | Probed | Checked | Stored | Wrote | Rollouts,
    Field(discriminator="kind"),
]
_ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)


@dataclass(frozen=True)
class Told:
    """What the attempts of one run have told, in order, without what a later attempt did not take up."""

    events: tuple[Event, ...] = ()
    num_attempts: int = 0
    whole: tuple[Event, ...] = ()
    """Everything but progress, also what a later attempt did not take up."""
    left_out: str = ""
    """Which lines of the file are no events; empty where there are none."""

    def up_to(self, step: int) -> Told:
        """What belongs to a training that goes on from ``step``, the step itself included."""
        kept = tuple(event for event, at in _with_steps(self.events) if at <= step)
        return replace(self, events=kept)

    def kinds_of(self, step: int) -> set[str]:
        """Kinds of events that were told of ``step`` itself: metrics, evaluated, checkpoint, export."""
        return {event.kind for event in self.events if own_step(event) == step}

    @property
    def last_step(self) -> int:
        return max((at for _, at in _with_steps(self.events)), default=0)

    @property
    def results(self) -> tuple[Event, ...]:
        """Numbers, evaluations and saves of the last attempt."""
        begins = [number for number, event in enumerate(self.events) if isinstance(event, Resumed)]
        latest = self.events[begins[-1] :] if begins else self.events
        return tuple(event for event in latest if isinstance(event, Metrics | Evaluated | Saved))


def own_step(event: Event) -> int | None:
    """The training step that an event speaks of; None for events of no step."""
    match event:
        case Progress():
            return event.done
        case Evaluated():
            return event.report.step
        case Metrics() | Saved() | Resumed() | Rollouts():
            return event.step
        case _:
            return None


def marked_over(events: Iterable[Event], num_attempts: int) -> tuple[Event, ...]:
    """The same, as it is told when the first ``num_attempts`` have ended."""
    return tuple(
        event.model_copy(update={"is_over": True})
        if isinstance(event, Resumed) and event.attempt <= num_attempts
        else event
        for event in events
    )


def lineage(events: Iterable[Event]) -> tuple[Event, ...]:
    """Events without those that a later ``Resumed`` left behind: told after the step that it goes on from."""
    kept: list[Event] = []
    for event in events:
        if isinstance(event, Resumed):
            kept = [before for before, at in _with_steps(kept) if at <= event.step]
        kept.append(event)
    return tuple(kept)


def _with_steps(events: Iterable[Event]) -> list[tuple[Event, int]]:
    """Each event and its step; one of no step belongs to the last step told before it."""
    found, at = [], 0
    for event in events:
        step = own_step(event)
        at = at if step is None else step
        found.append((event, at))
    return found


class EventLog:
    """Writes events to standard output and, line by line, to a file that outlives the job.

    ``listener`` hears each event of this process too, once it is written.
    """

    def __init__(self, path: Path | None = None, listener: Callable[[Event], object] | None = None) -> None:
        self._path = path
        self._listener = listener
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def emit(self, event: Event) -> None:
        line = event.model_dump_json()
        if self._path is not None:
            _append_line(self._path, line)
        _write_line(line)
        if self._listener is not None:
            self._listener(event)

    def earlier(self) -> Told:
        """What the file holds. A line that a crash has torn is left out and named, and no reason to stop.

        Raises OtherVersion where another version has written it.
        """
        if self._path is None or not self._path.is_file():
            return Told()
        events: list[Event] = []
        torn: list[str] = []
        # Bytes, and only at their newlines: JSON may hold U+2028 and its like, which str.splitlines takes for ends.
        for number, line in enumerate(self._path.read_bytes().split(b"\n"), 1):
            if not line:
                continue
            try:
                events.append(_ADAPTER.validate_json(line))
            except ValidationError as error:
                _refuse_other_version(line, error, f"{self._path}, line {number}")
                torn.append(f"line {number} ({len(line)} bytes)")
        num_attempts = max((event.attempt for event in events if isinstance(event, Resumed)), default=0)
        left_out = f"{self._path}: left out as no event: {', '.join(torn)}" if torn else ""
        whole = tuple(event for event in events if not isinstance(event, Progress))
        return Told(lineage(events), num_attempts, whole, left_out)

    def retell(self, events: Iterable[Event]) -> None:
        """Print again what was told before; the file has it."""
        for event in events:
            _write_line(event.model_dump_json())


def _append_line(path: Path, line: str) -> None:
    """Append one line; what a crash left without its end gets it first, so that nothing is written behind it."""
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        torn = size > 0 and file.read(1) != b"\n"
        file.write(b"\n" * torn + line.encode() + b"\n")


def _write_line(document: str) -> None:
    """In one write: ``print`` makes two where Python runs unbuffered, and other threads' log lines get between.

    It begins with the end of a line: where another thread is in the middle of one, the event still begins its own.
    """
    sys.stdout.write(f"\n{PREFIX}{document}\n")
    sys.stdout.flush()


def parse_line(line: str) -> Event | None:
    """The event that a log line is, or None for ordinary text.

    An event begins with the marker and parses to its end. A traceback that quotes the marker is text, and so is what a
    crash has left of an event. Raises OtherVersion for a whole event that this version does not know.
    """
    if not line.startswith(PREFIX):
        return None
    document = line.removeprefix(PREFIX)
    try:
        return _ADAPTER.validate_json(document)
    except ValidationError as error:
        _refuse_other_version(document, error, "the job's log")
        return None


def _refuse_other_version(document: str | bytes, why: ValidationError, where: str) -> None:
    """What a crash has torn is no JSON any more; what is whole was meant."""
    try:
        found = json.loads(document)
    except ValueError:
        return
    if isinstance(found, dict) and "kind" in found:
        wrong = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in why.errors()[:3])
        raise OtherVersion(
            f"{where}: an event that this version does not read ({wrong}); go on with the version that began this run, "
            "or give it another run_name"
        )
