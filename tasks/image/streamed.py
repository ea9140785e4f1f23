"""A program whose lines are heard while it runs, and which never outlives its caller's interest in it."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from tasks.errors import ImageBuildFailed

NUM_LAST_LINES = 25


def run_streamed(
    argv: Sequence[str],
    stdin: IO[bytes],
    env: Mapping[str, str],
    timeout_s: float,
    grace_s: float,
    say: Callable[[str], object],
    clean: Callable[[str], str] = str,
) -> None:
    """Run to the end; raises ImageBuildFailed with the last lines when it fails or takes too long.

    Every line goes through ``clean`` before anybody hears of it. Whatever ends this call early, a cancellation
    too, ends the program and all that it started: told first, killed after ``grace_s`` seconds.
    """
    deadline = time.monotonic() + timeout_s
    process = subprocess.Popen(
        list(argv), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(env), start_new_session=True
    )
    last: deque[str] = deque(maxlen=NUM_LAST_LINES)
    try:
        lines = _lines(process)
        while (line := _next(lines, deadline, timeout_s, last)) is not None:
            last.append(clean(line))
            say(last[-1])
        code = process.wait(timeout=grace_s)
    except BaseException:
        _end(process, grace_s)
        raise
    if code != 0:
        raise ImageBuildFailed(
            f"the build ended with exit code {code}; correct what its last lines say:\n{_text(last)}"
        )


def _lines(process: subprocess.Popen[bytes]) -> queue.Queue[str | None]:
    """Filled by a thread, because a read from a pipe has no time limit; None after the last line."""
    lines: queue.Queue[str | None] = queue.Queue()
    assert process.stdout is not None
    stdout = process.stdout

    def read() -> None:
        with stdout:
            for line in stdout:
                lines.put(line.decode(errors="replace").rstrip("\r\n"))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _next(lines: queue.Queue[str | None], deadline: float, timeout_s: float, last: deque[str]) -> str | None:
    while (left_s := deadline - time.monotonic()) > 0:
        # In short waits: a thread that is told to stop hears of it between two of them.
        with suppress(queue.Empty):
            return lines.get(timeout=min(left_s, 0.5))
    raise ImageBuildFailed(
        f"the build was stopped after {timeout_s:g} s; give it more time (image.timeout_s), or see where it "
        f"hangs:\n{_text(last)}"
    )


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    try:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=grace_s)
    finally:
        # The group outlives its leader while anybody is in it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _text(last: deque[str]) -> str:
    return "\n".join(last) or "(it said nothing)"
