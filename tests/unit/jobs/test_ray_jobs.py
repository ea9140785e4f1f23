"""The Ray Jobs adapter against a dashboard on loopback that asks for a session, as HyperPod's endpoint does."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import ClusterUnreachable, SubmissionRefused
from tasks.jobs.ray_jobs import RETRY_PAUSES_S, RayJobs, cluster_resources

SCHEME = """
from itertools import count
from ray.dashboard.modules.dashboard_sdk import ClusterInfo
sessions = count(1)
def get_job_submission_client_cluster_info(address, *args, **kwargs):
    return ClusterInfo(address=f"http://{address}", cookies={"ray_session": str(next(sessions))})
"""
"""What toolkit-for-ray-on-sagemaker-ai does for sagemaker_ray://: a new client gets a new cookie."""


class Dashboard:
    """Takes sessions from ``valid_from`` on; answers ``stumbles`` requests with 503; records what it was asked."""

    def __init__(self) -> None:
        self.valid_from, self.stumbles = 1, 0
        self.jobs: dict[str, str] = {}
        self.asked: list[str] = []
        self.lose_next_answer = False


def _handler(dashboard: Dashboard) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def _answer(self, status: int, body: Any) -> None:
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _serve(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            session = int(self.headers.get("Cookie", "ray_session=0").partition("=")[2])
            dashboard.asked.append(f"{self.command} {self.path} in session {session}")
            if self.path == "/api/version":
                return self._answer(
                    200, {"version": "4", "ray_version": "2.57.0", "ray_commit": "", "session_name": "s"}
                )
            if session < dashboard.valid_from:
                return self._answer(dashboard_refusal(dashboard), "no session")
            if dashboard.stumbles:
                dashboard.stumbles -= 1
                return self._answer(503, "token service unavailable")
            if self.path == "/api/cluster_status":
                usage = {"usage": {"GPU": [2.0, 6.0]}}
                return self._answer(200, {"data": {"clusterStatus": {"loadMetricsReport": usage}}})
            if self.command == "POST":
                name = json.loads(sent)["submission_id"]
                if name in dashboard.jobs:
                    return self._answer(500, f"Job with submission_id {name} already exists.")
                dashboard.jobs[name] = "RUNNING"
                if dashboard.lose_next_answer:
                    dashboard.lose_next_answer = False
                    return self._answer(502, "bad gateway")
                return self._answer(200, {"job_id": name, "submission_id": name})
            name = self.path.rsplit("/", 1)[1]
            if name not in dashboard.jobs:
                return self._answer(404, f"Job {name} does not exist")
            return self._answer(200, {"type": "SUBMISSION", "entrypoint": "e", "status": dashboard.jobs[name]})

        do_GET = do_POST = _serve  # noqa: N815 - http.server's names

    return Handler


def dashboard_refusal(dashboard: Dashboard) -> int:
    return 403 if dashboard.valid_from > 10**6 else 401


@pytest.fixture
def dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Dashboard, str]]:
    (tmp_path / "loop_ray.py").write_text(SCHEME)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("loop_ray", None)
    state = Dashboard()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield state, f"loop_ray://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_session_that_has_ended_is_renewed_and_the_request_goes_through(dashboard: tuple[Dashboard, str]) -> None:
    state, address = dashboard
    jobs = RayJobs(address)
    jobs.submit("run-train-1", "python -m rl.grpo.job", {})
    state.valid_from = 2
    assert jobs.state("run-train-1").status == "RUNNING"
    assert [line for line in state.asked if "/api/jobs/run" in line] == [
        "GET /api/jobs/run-train-1 in session 1",
        "GET /api/jobs/run-train-1 in session 2",
    ]


def test_a_cluster_that_refuses_fresh_sessions_too_is_an_error_that_says_whose_it_is(
    dashboard: tuple[Dashboard, str],
) -> None:
    state, address = dashboard
    jobs = RayJobs(address)
    state.valid_from = 10**7
    with pytest.raises(SubmissionRefused, match=r"only the identity that created the RayCluster .* may submit"):
        jobs.submission_ids()
    state.valid_from = 10**3
    with pytest.raises(SubmissionRefused, match="the credentials have expired; log in again"):
        jobs.submission_ids()


def test_a_server_that_stumbles_is_asked_again_for_a_while(dashboard: tuple[Dashboard, str]) -> None:
    state, address = dashboard
    slept: list[float] = []
    jobs = RayJobs(address, sleep=slept.append)
    jobs.submit("j", "e", {})
    state.stumbles = 3
    assert jobs.state("j").status == "RUNNING"
    assert slept == list(RETRY_PAUSES_S[:3])
    state.stumbles = 100
    with pytest.raises(ClusterUnreachable, match=r"did not answer 5 times .*token service unavailable"):
        jobs.state("j")


def test_a_submission_whose_answer_was_lost_is_not_made_twice(dashboard: tuple[Dashboard, str]) -> None:
    state, address = dashboard
    jobs = RayJobs(address, sleep=lambda seconds: None)
    state.lose_next_answer = True
    jobs.submit("j", "e", {})
    assert state.jobs == {"j": "RUNNING"}
    assert sum("POST" in line for line in state.asked) == 2


def test_a_job_that_is_not_there_is_not_asked_for_again(dashboard: tuple[Dashboard, str]) -> None:
    state, address = dashboard
    jobs = RayJobs(address)
    with pytest.raises(RuntimeError, match="does not exist"):
        jobs.state("nobody")
    assert sum("nobody" in line for line in state.asked) == 1


def test_resources_are_read_within_a_session(dashboard: tuple[Dashboard, str]) -> None:
    state, address = dashboard
    assert cluster_resources(address) == {"ray_version": "2.57.0", "gpus_total": 6.0, "gpus_free": 4.0}
    assert all("session 1" in line for line in state.asked)


def test_an_address_whose_module_is_missing_says_so() -> None:
    with pytest.raises(ClusterUnreachable, match="Module: moon_ray does not exist"):
        RayJobs("moon_ray://cluster/namespace")


def test_ctrl_c_while_a_log_is_silent_comes_out_as_itself(
    dashboard: tuple[Dashboard, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator that is asked for its next words cannot be closed (PEP 525): the question is taken back first."""
    _state, address = dashboard
    jobs = RayJobs(address)
    jobs.submit("j", "e", {})
    closed: list[str] = []

    async def silent(submission_id: str) -> AsyncIterator[str]:
        try:
            await asyncio.sleep(600)
            yield ""
        finally:
            closed.append(submission_id)

    monkeypatch.setattr(jobs._client, "tail_job_logs", silent)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        next(jobs.log_lines("j", lambda: 60.0))
    assert closed == ["j"]
