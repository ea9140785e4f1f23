"""Prefect's server, and what `make deploy worker` registers and starts. The run's own services are not there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from prefect.client.base import PrefectHttpxSyncClient

from tests.services.loopback import free_port

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent


def until(holds: Callable[[], Any], what: str, timeout_s: float = 120) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what}: nothing within {timeout_s:g} s"
        time.sleep(0.5)
    return found


@dataclass(frozen=True)
class Prefect:
    """A server that somebody has registered the local deployments with, and a worker for them."""

    env: dict[str, str]
    client: PrefectHttpxSyncClient
    """Prefect's own: while its database is busy the server answers 503, and means "again"."""
    registered: str
    """What `maze-retrain deploy` printed."""
    register_s: float
    """How long that took."""

    @property
    def site(self) -> str:
        return self.env["PREFECT_API_URL"].removesuffix("/api")

    def get(self, path: str) -> Any:
        return self.client.get(path).json()

    def filtered(self, kind: str, **asked: Any) -> Any:
        return self.client.post(f"/{kind}/filter", json=asked).json()

    def runs(self, flow: str = "retrain") -> list[dict[str, Any]]:
        return self.filtered("flow_runs", flows={"name": {"any_": [flow]}})


def type_(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """``maze-retrain ...``, as a person types it."""
    command = [str(BIN / "maze-retrain"), *words]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)


@contextmanager
def deployed(folder: Path) -> Iterator[Prefect]:
    """It runs while the block does; what it and the worker say is in ``folder``."""
    port, nobody = free_port(), f"http://127.0.0.1:{free_port()}"
    api = f"http://127.0.0.1:{port}/api"
    env = {
        **os.environ,
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": api,
        "PREFECT_UI_API_URL": api,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PROJECT_DIR": str(ROOT),
        **dict.fromkeys(("RAY_JOBS_ADDRESS", "MLFLOW_TRACKING_URI", "SERVE_DASHBOARD", "SERVE_URL"), nobody),
        "SERVE_LISTEN": nobody.removeprefix("http://"),
    }
    log = (folder / "server.log").open("w")

    def start(*command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)

    started = [start(str(BIN / "prefect"), "server", "start", "--port", str(port))]
    try:
        with PrefectHttpxSyncClient(base_url=api, timeout=30) as client:
            until(lambda: answers(client), "Prefect's server")
            began_s = time.monotonic()
            done = type_(env, "deploy")
            assert done.returncode == 0, done.stdout + done.stderr
            register_s = time.monotonic() - began_s
            started.append(start(str(BIN / "maze-retrain"), "worker"))
            yield Prefect(env, client, done.stdout, register_s)
    finally:
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                # Prefect's worker, told to end while it takes note of a run's end, has been seen to wait for ever.
                process.kill()
                process.wait(30)
        log.close()


def answers(client: PrefectHttpxSyncClient) -> bool:
    try:
        return client.get("/health").is_success
    except httpx.TransportError:
        return False
