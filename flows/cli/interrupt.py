"""A run that is told to end: what is being stopped is said, and what is left when somebody will not wait for it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

from flows.cli.screen import Screen
from tasks.watch import News

ASKED_BY = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    # The terminal was closed.
    signal.SIGHUP: "SIGHUP",
}
"""Signals that ask a run to end, and how the screen calls them."""


class Stops:
    """The first one stops the run and lets it clean up, the second one stops that too, a third ends the process."""

    def __init__(self, screen: Screen) -> None:
        self._screen, self._heard, self._is_in_front = screen, 0, False
        self.code = 0
        """Exit code of a run that was told to end, as shells have it: 128 and the signal's number."""

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Signals are heard while the block runs; one that is ignored, as SIGHUP under nohup, stays so."""
        if not _is_main_thread():
            yield
            return
        heeded = [number for number in ASKED_BY if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._stop) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def watch(self, news: News) -> None:
        """Prefect's flow hears SIGTERM itself, and says nothing to the terminal: from its first news on we hear first.

        ``capture_sigterm`` of prefect.utilities.engine sends the signal again, to us, when the flow has ended.
        """
        theirs: Any = signal.getsignal(signal.SIGTERM)
        if self._is_in_front or not _is_main_thread() or theirs == self._stop or not callable(theirs):
            return
        self._is_in_front = True
        signal.signal(signal.SIGTERM, partial(self._pass_on, theirs))

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._is_in_front and number == signal.SIGTERM and self.code:
            return
        self._tell(number)
        raise KeyboardInterrupt

    def _pass_on(self, theirs: Callable[[int, FrameType | None], object], number: int, frame: FrameType | None) -> None:
        self._tell(number)
        theirs(number, frame)

    def _tell(self, number: int) -> None:
        self._heard += 1
        self.code = self.code or 128 + number
        if self._heard > 2:
            os._exit(self.code)
        # The terminal may be gone.
        with suppress(OSError):
            text = stopping(self._screen) if self._heard == 1 else leaving(self._screen)
            self._screen.line(text, ASKED_BY[signal.Signals(number)], "yellow")


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def stopping(screen: Screen) -> str:
    """What the first one stops."""
    job = f" and its Ray job {screen.job}" if screen.job else ""
    return f"stopping {screen.stage or 'the run'}{job}, then cleaning up; once more leaves everything as it is"


def leaving(screen: Screen) -> str:
    """What the second one leaves behind."""
    job = f"Ray job {screen.last_job} may still run; " if screen.last_job else ""
    return f"not waiting: {job}`maze-retrain cleanup {screen.run_name or 'RUN'}` shows what is left"
