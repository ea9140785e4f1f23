"""A page whose lines and tables reach who watches the run as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.run import Page
from tasks.watch import JobSaid, Moved, Said, Table, Warned, Watcher


class WatchedPage:
    """Page (tasks/run.py) that tells two: the page itself, and a watcher."""

    def __init__(self, page: Page, tell: Watcher) -> None:
        self._page, self._tell = page, tell

    def say(self, text: str) -> None:
        self._tell(Said(text))
        self._page.say(text)

    def warn(self, text: str) -> None:
        self._tell(Warned(text))
        self._page.warn(text)

    def job_line(self, text: str) -> None:
        self._tell(JobSaid(text))
        self._page.job_line(text)

    def table(self, key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
        self._tell(Table(key, rows))
        self._page.table(key, rows, description)

    def markdown(self, key: str, text: str, description: str) -> None:
        self._page.markdown(key, text, description)

    def picture(self, key: str, url: str) -> None:
        self._page.picture(key, url)

    def progress(self, done: int, total: int, text: str) -> None:
        self._tell(Moved(done, total, text))
        self._page.progress(done, total, text)
