"""Local services: real processes on loopback."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import psutil
import pytest

from tasks.local.process import Processes, Service, ServiceFailed, answers, choose_port, is_port_free
from tasks.local.session import is_over


def http_service(port: int, name: str = "web", code: str | None = None, timeout_s: float = 30.0) -> Service:
    argv = [sys.executable, *(["-c", code] if code else ["-m", "http.server", str(port), "--bind", "127.0.0.1"])]
    return Service(name, argv, {}, port, f"http://127.0.0.1:{port}/", timeout_s)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_service_is_started_found_again_and_stopped_by_pid(tmp_path: Path) -> None:
    processes, port = Processes(tmp_path), free_port()
    started = processes.start(http_service(port))
    assert Processes(tmp_path).running("web") == started
    assert answers(f"http://127.0.0.1:{port}/")
    process = psutil.Process(started.pid)
    assert processes.stop("web")
    assert is_over(process)
    assert processes.running("web") is None
    assert not processes.stop("web")


def test_a_recycled_pid_is_not_taken_for_the_service(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    me = psutil.Process()
    (tmp_path / "web.json").write_text(f'{{"pid": {me.pid}, "created": {me.create_time() - 3600}, "port": 1}}')
    assert processes.running("web") is None
    assert not processes.stop("web")
    assert me.is_running()


def test_a_service_that_dies_shows_the_end_of_its_log(tmp_path: Path) -> None:
    dying = http_service(free_port(), code="raise SystemExit('no database at /nowhere')")
    with pytest.raises(ServiceFailed, match=r"(?s)web ended before it answered.*no database at /nowhere"):
        Processes(tmp_path).start(dying)


def test_a_service_that_never_answers_is_stopped_and_reported(tmp_path: Path) -> None:
    hanging = http_service(free_port(), code="import time; time.sleep(600)", timeout_s=1.0)
    processes = Processes(tmp_path)
    with pytest.raises(ServiceFailed, match="web did not answer within 1 s"):
        processes.start(hanging)
    assert processes.running("web") is None


def test_a_taken_port_gets_another_one_and_says_so() -> None:
    said: list[str] = []
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        taken = squatter.getsockname()[1]
        assert not is_port_free(taken)
        other = choose_port(taken, said.append, "mlflow")
    assert other != taken
    me = psutil.Process()
    assert said == [f"port {taken} is taken by {me.name()} (pid {me.pid}), mlflow uses {other}"]


def test_ports_that_belong_together_are_free_together() -> None:
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        taken = squatter.getsockname()[1]
        first = choose_port(taken - 1, lambda text: None, "serve", num_ports=2)
    assert taken not in (first, first + 1)
