"""No service of `make up` listens where another machine reaches it, and Ray takes no orders without its token."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import psutil
import pytest
import requests

from tasks.clients.ray_token import token_headers
from tasks.errors import SubmissionRefused
from tasks.jobs.ray_jobs import RayJobs, cluster_resources
from tasks.local.services import PREFERRED_PORTS, Layout, LocalServices
from tests.services.sockets import family, is_loopback, sockets

pytestmark = pytest.mark.slow_s(60)
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def local(services: dict[str, str]) -> LocalServices:
    return LocalServices(Layout(ROOT, Path(services["PREFECT_HOME"]).parent), print)


def test_every_process_of_every_service_listens_on_loopback_alone(local: LocalServices) -> None:
    running = local.running()
    assert running.keys() == PREFERRED_PORTS.keys()
    for name, found in running.items():
        waiting = sockets(found.pid)
        assert any(port == found.port for _, _, port in waiting), name
        assert [one for one in waiting if not is_loopback(one[1])] == [], name
    # A cluster is more than its dashboard: the control store, the raylet, the agents, and the workers.
    for name in ("ray", "serve"):
        programs = {program for program, _, _ in sockets(running[name].pid)}
        assert {"gcs_server", "raylet"} <= programs
        assert len(sockets(running[name].pid)) >= 7


@pytest.mark.parametrize("cluster", ["RAY_JOBS_ADDRESS", "SERVE_DASHBOARD"])
def test_a_cluster_takes_nothing_from_whoever_has_no_token(
    services: dict[str, str], cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = services[cluster]
    assert "ray_version" in cluster_resources(address)
    RayJobs(address).submission_ids()
    for token in ({}, {"Authorization": "Bearer " + "0" * 64}):
        for path in ("/api/jobs/", "/api/serve/applications/", "/api/cluster_status", "/nodes?view=summary"):
            assert requests.get(f"{address}{path}", headers=token, timeout=30).status_code in (401, 403), path
        job = {"entrypoint": "true", "submission_id": "uninvited"}
        assert requests.post(f"{address}/api/jobs/", json=job, headers=token, timeout=30).status_code in (401, 403)
    assert "uninvited" not in RayJobs(address).submission_ids()
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    assert token_headers(address) == {}
    with pytest.raises(SubmissionRefused, match="401"):
        RayJobs(address)


def test_a_driver_without_the_token_does_not_get_into_the_cluster(local: LocalServices) -> None:
    head = psutil.Process(local.running()["ray"].pid)
    (gcs,) = [child for child in head.children(recursive=True) if child.name() == "gcs_server"]
    (port,) = {one.laddr.port for one in gcs.net_connections("inet") if one.status == psutil.CONN_LISTEN}
    code = f"import ray; ray.init(address='127.0.0.1:{port}'); print('inside')"
    command = [str(ROOT / ".venv-train" / "bin" / "python"), "-c", code]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    mode = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(command, env={**plain, **mode}, capture_output=True, text=True, timeout=120, check=False)
    assert "inside" not in done.stdout
    assert done.returncode != 0
    assert "authentication" in done.stderr.lower()


def test_the_token_is_its_owner_s_and_stands_in_no_command_line(services: dict[str, str], local: LocalServices) -> None:
    path = Path(services["RAY_AUTH_TOKEN_PATH"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = path.read_text()
    assert len(token) == 64
    for found in local.running().values():
        for process in family(found.pid):
            assert token not in " ".join(process.cmdline())


def test_a_token_goes_to_ray_s_own_addresses_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert token_headers("sagemaker_ray://maze-train/maze") == {}
    with pytest.raises(SubmissionRefused, match=r"Ray's token cannot be read .*name its file in RAY_AUTH_TOKEN_PATH"):
        token_headers("http://127.0.0.1:8265")
    (tmp_path / "token").write_text("secret\n")
    assert token_headers("http://127.0.0.1:8265") == {"Authorization": "Bearer secret"}
    monkeypatch.setenv("RAY_AUTH_TOKEN", "other")
    assert token_headers("https://ray.example") == {"Authorization": "Bearer other"}
