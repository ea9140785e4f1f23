"""What a followed job prints, in a file here and, when it has been followed to its end, in MLflow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.run import RunContext

FOLDER = "logs"
"""Of the run's artifacts in MLflow."""


class RawLog:
    """A file that takes lines; one that cannot be written says so once, and ends nothing."""

    def __init__(self, context: RunContext, job: str) -> None:
        self._warn = context.page.warn
        self.path = context.logs_dir / f"{job}.log" if context.logs_dir else None
        self._is_broken = False

    def begin(self) -> None:
        """A log is heard from its start, so its file is written from its start."""
        if self.path is not None:
            self._try(self.path, "w", "")

    def line(self, text: str) -> None:
        if self.path is not None and not self._is_broken:
            self._try(self.path, "a", text + "\n")

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
        if log.path is not None and log.path.is_file():
            context.run.file(log.path, FOLDER)
