"""Who watches a run as it goes, beside MLflow and Prefect: a terminal. Told what happens, in its order.

A watcher never stops what it watches: one that fails hears nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Opened:
    """A run begins, or one of its name goes on."""

    run_name: str
    flow_run_id: str
    tracking_url: str
    """Its page in MLflow; empty where MLflow is not told of it."""


@dataclass(frozen=True)
class Began:
    """A stage begins."""

    stage: str
    about: str = ""
    """Which of several calls it is, where a stage is called more than once."""


@dataclass(frozen=True)
class Ended:
    """A stage has ended."""

    stage: str
    about: str
    outcome: str
    """completed, failed or stopped."""
    found: str
    """In a few words."""
    took_s: float


@dataclass(frozen=True)
class Moved:
    """``done`` of ``total`` of what the stage under way does."""

    done: int
    total: int
    text: str
    unit: str = "steps"


@dataclass(frozen=True)
class Numbers:
    """Figures of one training step."""

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Evaluation:
    """The evaluation mazes were played at this step."""

    step: int
    num_solved: int
    num_mazes: int


@dataclass(frozen=True)
class Said:
    """A line of the run's log."""

    text: str


@dataclass(frozen=True)
class Warned:
    """A line that must not be overlooked."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows that the run's page shows."""

    key: str
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Following:
    """A Ray job is followed from here on."""

    job: str
    log_path: str
    """File here of what it prints; empty where that is kept nowhere."""


@dataclass(frozen=True)
class JobSaid:
    """A line that a followed job printed."""

    text: str


News = Opened | Began | Ended | Moved | Numbers | Evaluation | Said | Warned | Table | Following | JobSaid
Watcher = Callable[[News], object]

_WATCHERS: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Runs that are opened within the block tell ``watcher`` what happens."""
    token = _WATCHERS.set((*_WATCHERS.get(), _sheltered(watcher)))
    try:
        yield
    finally:
        _WATCHERS.reset(token)


def teller() -> Watcher:
    """Tells whoever watches here and now; a thread of the run may use it later."""
    watchers = _WATCHERS.get()

    def tell(news: News) -> None:
        for watcher in watchers:
            watcher(news)

    return tell


def nobody(news: News) -> None:
    """Watches nothing."""


def _sheltered(watcher: Watcher) -> Watcher:
    failed: list[Exception] = []

    def tell(news: News) -> None:
        if not failed:
            try:
                watcher(news)
            except Exception as error:
                failed.append(error)

    return tell
