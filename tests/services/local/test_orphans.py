"""A service whose first process was killed: what it left is found by its session and ended, and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tasks.local.process import Processes, Service, ServiceFailed, answers, is_freed
from tasks.local.services import Layout, LocalServices
from tasks.local.session import is_over
from tests.services.loopback import free_port, wait_until

pytestmark = pytest.mark.slow_s(100)
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def local(tmp_path: Path, said: list[str]) -> Iterator[LocalServices]:
    found = LocalServices(Layout(ROOT, tmp_path), said.append)
    yield found
    found.down()


def members(session: int) -> set[int]:
    """Pids of a session that are not over."""
    found = set()
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid not in members(pid), 10)


@pytest.mark.parametrize("name", ["mlflow", "prefect"])
def test_up_and_down_end_what_a_killed_server_left(
    name: str, local: LocalServices, said: list[str], tmp_path: Path
) -> None:
    local.up([name])
    first = local.running()[name]
    # MLflow's job runners would be nine more, of 260 MB each.
    commands = [" ".join(psutil.Process(pid).cmdline()).replace(str(tmp_path), "") for pid in members(first.pid)]
    assert len(commands) <= 4, commands
    assert not [command for command in commands if "huey" in command or "job" in command]
    kill(first.pid)
    assert name not in local.running()
    # MLflow's leader ends nobody when it is killed: its server goes on, with the port.
    left = members(first.pid)
    assert left or name != "mlflow"

    local.up([name])
    second = local.running()[name]
    assert second.port == first.port
    assert second.pid != first.pid
    assert members(first.pid) == set()
    if left:
        assert any(line.startswith(f"{name}'s first process is gone; ending what it left (pid ") for line in said)

    kill(second.pid)
    left = members(second.pid)
    said.clear()
    local.down()
    assert members(second.pid) == set()
    assert is_freed(second.port)
    expected = f"{name}, whose first process was gone, stopped" if left else f"{name} was not running"
    assert expected in said


def test_a_service_that_was_stopped_with_its_children_leaves_nobody(tmp_path: Path) -> None:
    port = free_port()
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    web = f"import http.server as h; h.HTTPServer(('127.0.0.1', {port}), h.SimpleHTTPRequestHandler).serve_forever()"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]); exec({web!r})"
    processes = Processes(tmp_path)
    service = Service("web", [sys.executable, "-c", code], {}, port, f"http://127.0.0.1:{port}/", 30)
    first = processes.start(service)
    assert len(members(first.pid)) == 2
    assert processes.stop("web", grace_s=1.0)
    assert members(first.pid) == set()

    first = processes.start(service)
    kill(first.pid)
    (orphan,) = processes.orphans("web")
    assert processes.running("web") is None
    assert processes.stop("web", grace_s=1.0)
    assert is_over(orphan)
    assert processes.orphans("web") == []
    assert not processes.stop("web")


def test_another_process_s_session_is_never_taken_for_the_service(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        created = psutil.Process(other.pid).create_time() - 3600
        (tmp_path / "web.json").write_text(f'{{"pid": {other.pid}, "created": {created}, "port": 1}}')
        processes = Processes(tmp_path)
        assert processes.orphans("web") == []
        assert not processes.stop("web")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_server_whose_first_process_is_gone_has_not_come_up(tmp_path: Path) -> None:
    port = free_port()
    web = f"import http.server as h; h.HTTPServer(('127.0.0.1', {port}), h.SimpleHTTPRequestHandler).serve_forever()"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {web!r}]); time.sleep(2)"
    processes = Processes(tmp_path)
    service = Service("web", [sys.executable, "-c", code], {}, port, f"http://127.0.0.1:{port}/", 30)
    first = processes.launch(service)
    wait_until(lambda: processes.running("web") is None, 20)
    time.sleep(0.2)
    assert answers(service.health_url)
    with pytest.raises(ServiceFailed, match="web ended before it answered"):
        processes.wait(service)
    assert members(first.pid) == set()
