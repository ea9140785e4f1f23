"""MLflow as docker/mlflow.yaml starts it, asked under the name that the cluster's runs ask it under.

Real: the server with its own check of host names, the client, the Host header. The name is resolved to loopback.
"""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import ViewType

from flows.deployments import deployments
from rl.readiness.node import mlflow_answers
from tasks.clients.mlflow_check import try_registry, try_tracking
from tasks.errors import TrackingUnavailable
from tasks.local.process import Processes, Service
from tests.services.loopback import free_port

pytestmark = pytest.mark.slow_s(70)

BIN = Path(__file__).resolve().parents[3] / ".venv" / "bin"
MANIFEST = list(yaml.safe_load_all(Path("docker/mlflow.yaml").read_text()))
POD = next(doc for doc in MANIFEST if doc["kind"] == "Deployment")["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]
URI: str = deployments()["evaluate/hyperpod"]["parameters"]["platform"]["tracking"]["tracking_uri"]
NAME, PORT = urlsplit(URI).hostname, urlsplit(URI).port


def command(folder: Path, port: int) -> list[str]:
    """The container's own, on loopback, with a folder in place of its volume."""
    here = [arg.replace("0.0.0.0", "127.0.0.1").replace("/data", str(folder)) for arg in CONTAINER["args"]]
    return [str(BIN / CONTAINER["command"][0]), *(arg.replace(str(PORT), str(port)) for arg in here)]


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    found = Processes(tmp_path_factory.mktemp("processes"))
    yield found
    for name in ("told", "untold"):
        found.stop(name)


@pytest.fixture(autouse=True)
def resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the cluster's DNS would, to loopback."""
    ask = socket.getaddrinfo

    def answer(host: Any, *more: Any, **named: Any) -> Any:
        return ask("127.0.0.1" if host == NAME else host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    monkeypatch.setenv("no_proxy", "*")


def started(processes: Processes, name: str, folder: Path, tells_its_name: bool) -> str:
    port = free_port()
    argv = [arg for arg in command(folder, port) if tells_its_name or not arg.startswith("--allowed-hosts")]
    env = {entry["name"]: entry["value"] for entry in CONTAINER["env"]}
    running = processes.running(name) or processes.start(
        Service(name, argv, env, port, f"http://127.0.0.1:{port}/health", 120)
    )
    return f"http://{NAME}:{running.port}"


def test_the_server_of_the_manifest_takes_what_a_run_asks_under_its_name(processes: Processes, tmp_path: Path) -> None:
    uri = started(processes, "told", tmp_path, tells_its_name=True)
    for _ in range(2):
        assert try_tracking(uri, "maze-retrain", "r") == "maze-retrain"
    assert try_registry(uri, "r", "s3://models/a/r") == "readiness-probe-r"
    assert mlflow_answers(uri, 30) == "200"
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("maze-retrain")
    assert experiment
    assert client.search_runs([experiment.experiment_id], run_view_type=ViewType.ACTIVE_ONLY) == []


def test_a_server_that_was_not_told_its_name_is_found_out_although_it_is_healthy(
    processes: Processes, tmp_path: Path
) -> None:
    uri = started(processes, "untold", tmp_path, tells_its_name=False)
    with urllib.request.urlopen(f"{uri}/health") as answer:
        assert answer.status == 200, "what was asked before"
    wanted = r"finding the experiment \(maze-retrain\) failed: .*Invalid Host header.*start it with --allowed-hosts"
    with pytest.raises(TrackingUnavailable, match=wanted):
        try_tracking(uri, "maze-retrain", "r")
    with pytest.raises(TrackingUnavailable, match=r"Invalid Host header.*start it with --allowed-hosts"):
        try_registry(uri, "r", "s3://models/a/r")
    with pytest.raises(HTTPError, match="403"):
        mlflow_answers(uri, 30)


def test_the_service_of_the_manifest_has_the_name_that_runs_use() -> None:
    (service,) = [doc for doc in MANIFEST if doc["kind"] == "Service"]
    meta, (port,) = service["metadata"], service["spec"]["ports"]
    assert f"{meta['name']}.{meta['namespace']}.svc.cluster.local:{port['port']}" == urlsplit(URI).netloc
    assert POD["enableServiceLinks"] is False, "the kubelet would set MLFLOW_PORT=tcp://..., an option of the server"
