"""Ctrl-C: what is being stopped is said, and what is left when somebody will not wait for it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from flows.cli.failure import INTERRUPTED
from flows.cli.screen import Screen


@contextmanager
def told_of_interrupts(screen: Screen) -> Iterator[None]:
    """The first one stops the run and lets it clean up, the second one stops that too, a third ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    presses = 0

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal presses
        presses += 1
        if presses > 2:
            os._exit(INTERRUPTED)
        screen.line(stopping(screen) if presses == 1 else leaving(screen), "Ctrl-C", "yellow")
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def stopping(screen: Screen) -> str:
    """What the first Ctrl-C stops."""
    job = f" and its Ray job {screen.job}" if screen.job else ""
    return f"stopping {screen.stage or 'the run'}{job}, then cleaning up; once more leaves everything as it is"


def leaving(screen: Screen) -> str:
    """What the second one leaves behind."""
    job = f"Ray job {screen.last_job} may still run; " if screen.last_job else ""
    return f"not waiting: {job}`maze-retrain cleanup {screen.run_name or 'RUN'}` shows what is left"
