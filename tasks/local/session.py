"""Processes of a session: all that a service has started, as far as it has not made a session of its own.

A session's number is its first process's, and the kernel gives it to no other as long as one of the session lives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import psutil


def is_same(pid: int, created: float) -> bool:
    """Whether the pid is still the process that began then, over or not."""
    try:
        return abs(psutil.Process(pid).create_time() - created) < 1.0
    except psutil.NoSuchProcess:
        return False


def members(pid: int, created: float) -> list[psutil.Process]:
    """Processes of the session that this one began and that are not over, itself ahead."""
    if psutil.pid_exists(pid) and not is_same(pid, created):
        return []
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == pid and not is_over(process):
                found.append(process)
        except ProcessLookupError:
            continue
    return sorted(found, key=lambda process: process.pid != pid)


def is_over(process: psutil.Process) -> bool:
    """Gone, or dead and not yet collected by its parent."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until_over(processes: Sequence[psutil.Process], timeout_s: float) -> None:
    """Returns when all are over, or after the time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not all(is_over(process) for process in processes):
        time.sleep(0.05)


def tell(processes: Sequence[psutil.Process], number: int) -> None:
    """Send a signal to those that are there."""
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue
