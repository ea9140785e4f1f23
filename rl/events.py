"""What a training job tells the orchestrator: one JSON line an event, in its log and in a file beside its run.

The job's log is the one channel that every Ray cluster offers (a shared file system may be out of the
orchestrator's reach), and it can be read again from the start: events carry their step, so whoever follows a
second time knows what it already has.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from rl.maze.score import EvalReport

PREFIX = "@event "


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
    """Where training starts: step 0, or the checkpoint it goes on from."""

    kind: Literal["resumed"] = "resumed"
    attempt: int = 1
    """Counts this run's jobs that began to train."""
    step: int
    path: str


class Fault(_Event):
    """Something that went wrong and was survived, or that ends the job."""

    kind: Literal["fault"] = "fault"
    boundary: str
    message: str


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


Event = Annotated[
    Progress | Metrics | Evaluated | Saved | Resumed | Fault | Probed | Checked | Stored, Field(discriminator="kind")
]
_ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)


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
            with self._path.open("a") as file:
                file.write(line + "\n")
        _write_line(line)
        if self._listener is not None:
            self._listener(event)

    def told(self, step: int) -> set[str]:
        """Kinds of events that earlier attempts of this run told of ``step``: evaluated, checkpoint, export."""
        return {event.kind for event, told_step, _ in self._earlier() if told_step == step}

    def replay(self, up_to_step: int) -> None:
        """Print again what earlier attempts of this run evaluated and saved: a resumed job tells the whole story."""
        for _, told_step, line in self._earlier():
            if told_step < up_to_step:
                _write_line(line)

    def _earlier(self) -> Iterator[tuple[Evaluated | Saved, int, str]]:
        """Evaluations and saves in the file: event, step, line."""
        if self._path is None or not self._path.is_file():
            return
        for line in self._path.read_text().splitlines():
            event = _ADAPTER.validate_json(line)
            if isinstance(event, Evaluated | Saved):
                yield event, event.report.step if isinstance(event, Evaluated) else event.step, line


def _write_line(document: str) -> None:
    """In one write: ``print`` makes two where Python runs unbuffered, and other threads' log lines get between."""
    sys.stdout.write(f"{PREFIX}{document}\n")
    sys.stdout.flush()


def parse_line(line: str) -> Event | None:
    """The event in one log line, or None for ordinary text. Text of other writers may stand before and behind it.

    Raises ValueError (pydantic.ValidationError) for a line that claims to be an event and is not.
    """
    _, found, rest = line.partition(PREFIX)
    return _ADAPTER.validate_python(json.JSONDecoder().raw_decode(rest)[0]) if found else None
