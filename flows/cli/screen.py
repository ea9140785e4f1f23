"""The terminal of a run: one line a stage, a moving last line while one is under way; plain lines where there is none.

A watcher of the run (tasks/watch.py): the run knows nothing of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table as Grid
from rich.text import Text

from flows.cli.words import Course, Troubles, duration, is_worth_a_line, stage_line, subject, title
from tasks.watch import (
    Began,
    Ended,
    Evaluation,
    Following,
    JobSaid,
    Moved,
    News,
    Numbers,
    Opened,
    Said,
    Table,
    Warned,
)

LATE_S = 5.0
"""Without a terminal a stage's begin is a line of its own where it takes longer than this."""
QUIET_S = 60.0
"""Without a terminal what a stage says meanwhile is shown so often at most."""
MARKS = {"completed": ("ok", "green"), "failed": ("failed", "red"), "stopped": ("stopped", "yellow")}
PREFECT = "PREFECT_API_URL"


@dataclass
class UnderWay:
    """The stage that runs."""

    began: Began
    since_s: float
    course: Course
    said: str = ""


class Screen:
    """Takes a run's news and writes lines; ``is_live`` where lines can move."""

    def __init__(
        self,
        console: Console,
        addresses: Mapping[str, str],
        is_live: bool,
        clock: Callable[[], float] = time.monotonic,
        late_s: float = LATE_S,
    ) -> None:
        self.console, self._addresses, self._clock, self._late_s = console, addresses, clock, late_s
        self._is_live, self._lock, self._troubles = is_live, threading.RLock(), Troubles()
        self._now: UnderWay | None = None
        self._last_line_s = clock()
        self.run_name = self.page = self.log_path = self.job = self.last_job = self.failed_stage = ""
        self.tables: dict[str, Sequence[Mapping[str, Any]]] = {}

    @contextmanager
    def shown(self) -> Iterator[None]:
        """While the block runs, the last line moves."""
        if not self._is_live:
            yield
            return
        live = Live(console=self.console, get_renderable=self._moving, refresh_per_second=4, transient=True)
        with live:
            yield

    def __call__(self, news: News) -> None:
        with self._lock:
            self._hear(news)

    def overlook(self, harmless: Collection[str]) -> None:
        """Warnings of jobs that begin so are not shown."""
        self._troubles = Troubles(harmless=harmless)

    @property
    def stage(self) -> str:
        """What is under way, by its title."""
        return name_of(self._now.began) if self._now else ""

    def line(self, text: str, mark: str = "", style: str = "") -> None:
        """One line, as long as it is."""
        self._last_line_s = self._clock()
        shown = Text.assemble((f"{mark:<8}", style) if mark else "", text)
        self.console.print(shown, soft_wrap=True, highlight=False)

    def _hear(self, news: News) -> None:
        match news:
            case Opened():
                self._open(news)
            case Began():
                self._begin(news)
            case Ended():
                self._end(news)
            case Moved() | Numbers():
                self._move(news)
            case Evaluation():
                self.line(f"step {news.step} solves {news.num_solved} of {news.num_mazes} mazes", "eval", "cyan")
            case Said():
                self._say(news.text)
            case Warned():
                self._trouble(self._troubles.once(news.text))
            case Following():
                self.job = self.last_job = news.job
                self.log_path = news.log_path
            case JobSaid():
                self._trouble(self._troubles.heard(news.text))
            case Table():
                self.tables[news.key] = news.rows

    def _open(self, news: Opened) -> None:
        self.run_name = news.run_name
        self.line(f"run {news.run_name}", "begins", "bold")
        server = self._addresses.get(PREFECT, "").removesuffix("/api")
        self.page = f"{server}/runs/flow-run/{news.flow_run_id}" if server and news.flow_run_id else ""
        for name, url in (("Prefect", self.page), ("MLflow", news.tracking_url)):
            if url:
                self.line(f"{name:<8}{url}", "follow", "dim")

    def _begin(self, news: Began) -> None:
        self._now, self.job = UnderWay(news, self._clock(), Course()), ""
        if not self._is_live:
            timer = threading.Timer(self._late_s, self._late, (self._now,))
            timer.daemon = True
            timer.start()

    def _late(self, stage: UnderWay) -> None:
        with self._lock:
            if self._now is stage:
                self.line(name_of(stage.began), "...")

    def _end(self, news: Ended) -> None:
        self._now = None
        if news.outcome == "failed" and not self.failed_stage:
            self.failed_stage = name_of(news)
        if is_worth_a_line(news):
            mark, style = MARKS.get(news.outcome, (news.outcome, ""))
            self.line(stage_line(news), mark, style)

    def _move(self, news: Moved | Numbers) -> None:
        if self._now is None:
            return
        self._now.course.hear(news)
        if isinstance(news, Moved) and not self._is_live and news.unit == "steps" and news.done:
            self.line(self._now.course.line(), "step")

    def _say(self, text: str) -> None:
        if self._now is not None:
            self._now.said = text
            if not self._is_live and self._clock() - self._last_line_s >= QUIET_S:
                self.line(text, "...")

    def _trouble(self, text: str) -> None:
        if text:
            self.line(text, "!", "yellow")

    def _moving(self) -> RenderableType:
        """The last line: the stage under way, how far it is. One line whatever the width: it is drawn over itself."""
        now = self._now
        if now is None:
            return Text("")
        # At the right there is room for the ^C that a terminal writes by itself.
        width = max(20, self.console.width - 4)
        name, since = title(now.began.stage), f"for {duration(self._clock() - now.since_s)}"
        about, moved, room = subject(now.began.stage, now.began.about), now.course.moved, width - len(name + since) - 2
        grid = Grid.grid(padding=(0, 1, 0, 0))
        for _ in range(4):
            grid.add_column(no_wrap=True, overflow="ellipsis")
        if moved is None:
            said = Text((now.said or about)[: max(0, room - 2)], style="dim")
            grid.add_row(Spinner("line"), name, said, since)
        else:
            bar = ProgressBar(total=moved.total, completed=moved.done, width=24 if width >= 96 else 12)
            grid.add_row(name, bar, now.course.short(room - (bar.width or 0) - 1, about), since)
        return Constrain(grid, width)


def name_of(news: Began | Ended) -> str:
    """The stage, and which of several calls it is."""
    return f"{title(news.stage)} {subject(news.stage, news.about)}".strip()
