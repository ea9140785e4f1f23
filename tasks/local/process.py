"""One background process: started once, found again by its pid file, stopped by pid. Never by name."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

_LOOKS = 100
"""For free ports side by side."""


class ServiceFailed(RuntimeError):
    """A local service did not come up."""


@dataclass(frozen=True)
class Service:
    """A process to run and how to tell that it serves."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    port: int
    health_url: str
    timeout_s: float = 180.0


@dataclass(frozen=True)
class Running:
    """What the pid file says."""

    pid: int
    created: float
    """Start time of that pid, in seconds since 1970: a recycled pid has another."""
    port: int


def is_port_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose_port(preferred: int, say: Callable[[str], object], what: str, num_ports: int = 1) -> int:
    """The preferred port, or another free one - and then says so; the first of ``num_ports`` that are all free.

    Raises ServiceFailed where none are found.
    """

    def are_free(first: int) -> bool:
        return all(is_port_free(port) for port in range(first, first + num_ports))

    if are_free(preferred):
        return preferred
    for _ in range(_LOOKS):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if are_free(port):
            say(f"port {preferred} is taken by another process, {what} uses {port}")
            return port
    raise ServiceFailed(f"{what} needs {num_ports} free ports side by side, and none were found in {_LOOKS} looks")


class Processes:
    """The services of one state folder (``<state>/<name>.json`` and ``<state>/<name>.log``)."""

    def __init__(self, state: Path) -> None:
        self._state = state
        state.mkdir(parents=True, exist_ok=True)

    def running(self, name: str) -> Running | None:
        """The service's process if it lives; a stale pid file counts as stopped."""
        path = self._state / f"{name}.json"
        if not path.is_file():
            return None
        found = Running(**json.loads(path.read_text()))
        try:
            process = psutil.Process(found.pid)
            alive = process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - found.created) < 1.0
        except psutil.NoSuchProcess:
            alive = False
        return found if alive else None

    def start(self, service: Service) -> Running:
        """Launch and wait until it answers; raises ServiceFailed with the end of the service's log."""
        launched = self.launch(service)
        self.wait(service)
        return launched

    def launch(self, service: Service) -> Running:
        """Start in a session of its own and remember the pid."""
        log_path = self._state / f"{service.name}.log"
        with log_path.open("ab") as log:
            process = subprocess.Popen(
                list(service.argv),
                env={**os.environ, **service.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        found = Running(process.pid, psutil.Process(process.pid).create_time(), service.port)
        (self._state / f"{service.name}.json").write_text(json.dumps(asdict(found)))
        return found

    def wait(self, service: Service) -> None:
        """Wait until the launched service answers; raises ServiceFailed with the end of its log."""
        deadline = time.monotonic() + service.timeout_s
        while not answers(service.health_url):
            alive = self.running(service.name) is not None
            if not alive or time.monotonic() > deadline:
                state = f"did not answer within {service.timeout_s:g} s" if alive else "ended before it answered"
                self.stop(service.name)
                log_path = self._state / f"{service.name}.log"
                tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-15:])
                raise ServiceFailed(f"{service.name} {state}; the end of {log_path}:\n{tail}")
            time.sleep(0.3)

    def stop(self, name: str, grace_s: float = 20.0) -> bool:
        """Stop the service and what it started; False when it was not running."""
        found = self.running(name)
        if found is not None:
            family = [psutil.Process(found.pid), *psutil.Process(found.pid).children(recursive=True)]
            _signal(family[:1], signal.SIGTERM)
            _, left = psutil.wait_procs(family, timeout=grace_s)
            _signal(left, signal.SIGKILL)
        (self._state / f"{name}.json").unlink(missing_ok=True)
        return found is not None


def _signal(processes: Sequence[psutil.Process], number: int) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def answers(url: str) -> bool:
    """Whether somebody answers HTTP there; any status below 500 will do."""
    try:
        with urllib.request.urlopen(url, timeout=2.0):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
