"""What every stage of a run is handed: its name, where its figures are kept, who reads along, how its stages went."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from tasks.watch import Began, Ended, Watcher, nobody

FLOW_RUN = "maze.flow_run_id"
"""Key of a Ray job's metadata: the flow run that submitted it."""
Outcome = Literal["running", "completed", "failed", "stopped"]


@dataclass(frozen=True)
class Dataset:
    """Mazes that a run was made from or measured on, as MLflow names inputs of a run."""

    name: str
    digest: str
    """SHA-256; MLflow keeps its first 36 characters."""
    context: str
    """What for: training, selection."""
    source: dict[str, Any]
    """Where they come from: a manifest's path, or the seeds that they are drawn from."""
    profile: dict[str, Any]
    """How many, how large, how many anybody can solve."""


@dataclass(frozen=True)
class MadeModel:
    """An adapter that a run made, as MLflow lists a run's models."""

    name: str
    """Unlike that of any other: it says run and step."""
    step: int
    params: dict[str, str]
    """Where it lies, and what it was made from."""
    metrics: dict[str, float]
    """Of its evaluation; told with the adapter, so that MLflow links them."""
    dataset: tuple[str, str] = ("", "")
    """Name and digest of the mazes that it was evaluated on."""


class RunLog(Protocol):
    """One run in MLflow: what people compare. Telling it something neither waits nor fails."""

    @property
    def run_id(self) -> str:
        """Its id; a child's is empty until MLflow has heard of it."""
        ...

    @property
    def url(self) -> str:
        """Its page."""
        ...

    def metrics(self, step: int, values: Mapping[str, float]) -> None: ...

    def text(self, text: str, artifact_path: str) -> None: ...

    def file(self, path: Path, folder: str) -> None: ...

    def tags(self, tags: Mapping[str, str]) -> None: ...

    def inputs(self, datasets: Sequence[Dataset]) -> None:
        """What it was made from, or measured on."""
        ...

    def table(self, rows: Sequence[Mapping[str, Any]], artifact_path: str) -> None:
        """Rows with the same keys, as a table that MLflow's pages compare across runs."""
        ...

    def model(self, made: MadeModel) -> None:
        """An adapter that it made; told again it changes nothing."""
        ...

    def read(self, artifact_path: str) -> str | None:
        """What an earlier attempt kept under this path; raises TrackingUnavailable."""
        ...

    def params(self, params: Mapping[str, Any]) -> None:
        """One that the run has already stays as it is."""
        ...

    def begin(self) -> None:
        """It goes on, whatever ended it before."""
        ...

    def end(self, status: str) -> None:
        """``status`` is FINISHED, FAILED or KILLED."""
        ...

    def child(self, role: str, tags: Mapping[str, str]) -> RunLog:
        """The run below this one that has this role and these tags; made when it is told something."""
        ...


class Page(Protocol):
    """What people read while a run goes on. Keys name a thing of every run: ``readiness``, ``leftovers``."""

    def say(self, text: str) -> None:
        """One line of the log."""
        ...

    def warn(self, text: str) -> None:
        """One line of the log that must not be overlooked."""
        ...

    def job_line(self, text: str) -> None:
        """One line that a followed job printed."""
        ...

    def table(self, key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None: ...

    def markdown(self, key: str, text: str, description: str) -> None: ...

    def picture(self, key: str, url: str) -> None: ...

    def progress(self, done: int, total: int, text: str) -> None: ...


@dataclass
class StageRun:
    """One call of a stage."""

    name: str
    attempt: int
    """Counts from 1; Prefect's retries raise it."""
    started: datetime
    took_s: float = 0.0
    outcome: Outcome = "running"
    found: str = ""
    """What it found, in a few words."""


@dataclass
class StageBook:
    """Every stage that was called, in order: how often, how long, how it ended."""

    clock: Callable[[], float] = time.monotonic
    runs: list[StageRun] = field(default_factory=list)
    tell: Watcher = nobody

    @contextmanager
    def noted(self, name: str, attempt: int = 1, about: str = "") -> Iterator[StageRun]:
        """Note the block as one call of the stage ``name``; ``about`` says which, where it is called more than once."""
        run, started_s = StageRun(name, attempt, datetime.now(UTC)), self.clock()
        self.runs.append(run)
        self.tell(Began(name, about))
        try:
            yield run
        except Exception:
            run.outcome = "failed"
            raise
        except BaseException:
            run.outcome = "stopped"
            raise
        else:
            run.outcome = "completed"
        finally:
            run.took_s = self.clock() - started_s
            self.tell(Ended(name, about, run.outcome, run.found, run.took_s))

    def found(self, text: str) -> None:
        """What the stage under way found, where its record does not say it."""
        if self.runs:
            self.runs[-1].found = text

    def seconds(self) -> dict[str, float]:
        """Stage -> seconds; a stage that was called twice counts twice."""
        total: dict[str, float] = {}
        for run in self.runs:
            total[run.name] = total.get(run.name, 0.0) + run.took_s
        return total


@dataclass(frozen=True)
class Attempt:
    """A flow run that works, or has worked, under a run's name."""

    flow_run_id: str
    state: str
    """Prefect's word for it, such as RUNNING."""
    is_over: bool
    began: datetime


@dataclass(frozen=True)
class RunContext:
    """One run of a flow, as its stages see it. Made once, handed to each of them first."""

    run_name: str
    """Names the run everywhere: folder, Ray jobs, MLflow, adapter."""
    run: RunLog
    """The pipeline's own run; each attempt at training is a child of it."""
    page: Page
    clock: Callable[[], float] = time.monotonic
    stages: StageBook = field(default_factory=StageBook)
    started_s: float = field(default_factory=time.monotonic)
    """When the run began, by ``clock``."""
    flow_run_id: str = ""
    """The flow run that this happens in: one attempt of the run."""
    attempts: Callable[[], Sequence[Attempt]] = tuple
    """Asks for every attempt of the run; raises AttemptsUnknown."""
    tell: Watcher = nobody
    """Tells who watches the run as it goes."""
    logs_dir: Path | None = None
    """Folder for what the run's jobs print; None where that is kept nowhere."""

    @property
    def marks(self) -> dict[str, str]:
        """Whose a job is, for its metadata."""
        return {"maze.run_name": self.run_name, FLOW_RUN: self.flow_run_id}

    @property
    def wall_s(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self.started_s
