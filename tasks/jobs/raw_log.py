"""What a followed job prints, in a file here and, when it has been followed to its end, in MLflow."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.run import RunContext

MAX_PLAIN_BYTES = 2**20
"""A larger file goes to MLflow compressed."""
FOLDER = "logs"
"""Of the run's artifacts in MLflow."""


class RawLog:
    """A file that takes lines; one that cannot be written says so once, and ends nothing."""

    def __init__(self, context: RunContext, job: str) -> None:
        self._warn = context.page.warn
        self.path = context.logs_dir / f"{job}.log" if context.logs_dir else None
        self.events_path = self.path.with_suffix(".events.jsonl") if self.path else None
        self._is_broken = False
        self._told: set[str] = set()

    def begin(self) -> None:
        """A log is heard from its start, so its file is written from its start."""
        if self.path is not None:
            self._try(self.path, "w", "")
        self._told.clear()
        if self.events_path is not None and self.events_path.is_file():
            self._try(self.events_path, "w", "")

    def line(self, text: str) -> None:
        if self.path is not None and not self._is_broken:
            self._try(self.path, "a", text + "\n")

    def event(self, document: str) -> None:
        """Each once: a job tells its results again at its end."""
        if self.events_path is not None and not self._is_broken and document not in self._told:
            self._told.add(document)
            self._try(self.events_path, "a", document + "\n")

    def _try(self, path: Path, mode: str, text: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open(mode, encoding="utf-8", errors="replace") as file:
                file.write(text)
        except OSError as error:
            self._is_broken = True
            self._warn(f"what the job prints is not kept any more: {error}")


@contextmanager
def kept_log(context: RunContext, job: str) -> Iterator[RawLog]:
    """The job's log, in MLflow when the block ends, however it ends."""
    log = RawLog(context, job)
    log.begin()
    try:
        yield log
    finally:
        for path in (log.path, log.events_path):
            if path is not None and path.is_file():
                context.run.file(small(path), FOLDER)


def small(path: Path) -> Path:
    """The file itself, or its compressed copy where it is large."""
    if path.stat().st_size <= MAX_PLAIN_BYTES:
        return path
    packed = path.with_name(f"{path.name}.gz")
    with path.open("rb") as source, gzip.open(packed, "wb") as sink:
        shutil.copyfileobj(source, sink)
    return packed
