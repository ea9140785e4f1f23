"""One background service: started once, in a session of its own, found again by its pid file, stopped by pid.

What a service's first process leaves when it dies keeps port and files; it is known by the session. Never by name.
"""

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

from tasks.local.session import is_over, is_same, members, tell, wait_until_over

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
    """Of the first process, and of the session."""
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


def is_freed(port: int, timeout_s: float = 10.0) -> bool:
    """Whether the port of a process that died becomes free: it counts as over while its threads still end."""
    deadline = time.monotonic() + timeout_s
    while not (free := is_port_free(port)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return free


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
            say(f"port {preferred} is taken by {_who_listens(preferred)}, {what} uses {port}")
            return port
    raise ServiceFailed(f"{what} needs {num_ports} free ports side by side, and none were found in {_LOOKS} looks")


def _who_listens(port: int) -> str:
    for one in psutil.net_connections("tcp"):
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.pid is not None:
            try:
                return f"{psutil.Process(one.pid).name()} (pid {one.pid})"
            except psutil.NoSuchProcess:
                break
    return "another process"


class Processes:
    """The services of one state folder (``<state>/<name>.json`` and ``<state>/<name>.log``)."""

    def __init__(self, state: Path) -> None:
        self._state = state
        state.mkdir(parents=True, exist_ok=True)

    def running(self, name: str) -> Running | None:
        """The service's first process if it lives; a stale pid file counts as stopped."""
        found = self.recorded(name)
        return found if found and is_same(found.pid, found.created) and not is_over(psutil.Process(found.pid)) else None

    def orphans(self, name: str) -> list[psutil.Process]:
        """What a service whose first process is gone has left running."""
        found = self.recorded(name)
        return members(found.pid, found.created) if found and self.running(name) is None else []

    def recorded(self, name: str) -> Running | None:
        """What was started last and not stopped, whether it lives or not."""
        path = self._state / f"{name}.json"
        return Running(**json.loads(path.read_text())) if path.is_file() else None

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
        # What lost its first process may answer, too.
        while not (alive := self.running(service.name) is not None) or not answers(service.health_url):
            if not alive or time.monotonic() > deadline:
                state = f"did not answer within {service.timeout_s:g} s" if alive else "ended before it answered"
                self.stop(service.name)
                log_path = self._state / f"{service.name}.log"
                tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-15:])
                raise ServiceFailed(f"{service.name} {state}; the end of {log_path}:\n{tail}")
            time.sleep(0.3)

    def stop(self, name: str, grace_s: float = 20.0) -> bool:
        """Stop the service, what it started and what it left; False when there was nothing to stop."""
        found, first = self.recorded(name), self.running(name)
        family = members(found.pid, found.created) if found else []
        if first is not None:
            # A process that has made a session of its own, such as a Ray job's, goes too.
            family += [one for one in psutil.Process(first.pid).children(recursive=True) if one not in family]
        told = [one for one in family if first is None or one.pid == first.pid]
        tell(told, signal.SIGTERM)
        wait_until_over(family, grace_s)
        # What was started meanwhile is in the session, too.
        left = [one for one in {*family, *(members(found.pid, found.created) if found else [])} if not is_over(one)]
        tell(left, signal.SIGKILL)
        wait_until_over(left, grace_s)
        (self._state / f"{name}.json").unlink(missing_ok=True)
        return bool(family)


def answers(url: str) -> bool:
    """Whether somebody answers HTTP there; any status below 500 will do."""
    try:
        with urllib.request.urlopen(url, timeout=2.0):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
