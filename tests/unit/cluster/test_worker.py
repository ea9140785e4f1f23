"""docker/worker.yaml as its container would run it: its command, its environment, the AWS CLI that the image has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml
from boto3 import Session

from flows.deployments import deployments, load_settings
from tasks.cluster.manifests import ray_cluster, ray_service

WORKER = Path("docker/worker.yaml")
IMAGE = "registry/maze@sha256:" + "a" * 64


@pytest.fixture
def eks() -> Iterator[tuple[str, list[str]]]:
    """DescribeCluster of EKS (API reference) and the signatures' scopes, which name the region that was asked."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def do_GET(self) -> None:
            heard.append(self.headers["Authorization"].split("/")[2])
            name = self.path.rpartition("/")[2]
            cluster = {
                "name": name,
                "arn": f"arn:aws:eks:us-east-1:123456789012:cluster/{name}",
                "status": "ACTIVE",
                "endpoint": "https://eks.test",
                "certificateAuthority": {"data": "Q0E="},
            }
            body = json.dumps({"cluster": cluster}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    server.server_close()


def container() -> dict[str, Any]:
    (deployment,) = [doc for doc in yaml.safe_load_all(WORKER.read_text()) if doc["kind"] == "Deployment"]
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return found


def environment() -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container()["env"]}


def test_the_worker_starts_with_the_environment_that_its_pod_has(tmp_path: Path, eks: tuple[str, list[str]]) -> None:
    address, heard = eks
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "prefect").write_text('#!/bin/sh\necho "prefect $@"\n')
    (bin_folder / "prefect").chmod(0o755)
    (tmp_path / ".local/hyperpod").mkdir(parents=True)
    env = {
        **environment(),
        "PATH": f"{bin_folder}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_ENDPOINT_URL_EKS": address,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    command = [*container()["command"], *container()["args"]]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "prefect worker start --pool hyperpod"
    written = yaml.safe_load((tmp_path / ".local/hyperpod/kubeconfig").read_text())
    (user,) = written["users"]
    assert user["user"]["exec"]["args"][:2] == ["--region", "us-east-1"]
    assert heard == ["us-east-1"]


def test_its_kubeconfig_is_where_every_run_looks_for_it() -> None:
    workdir = container()["workingDir"]
    told = container()["args"][0].partition("--kubeconfig ")[2].split()[0]
    pools = [entry["work_pool"] for entry in deployments().values() if entry["work_pool"]["name"] == "hyperpod"]
    assert {pool["job_variables"]["env"]["KUBECONFIG"] for pool in pools} == {f"{workdir}/{told}"}
    assert environment()["PROJECT_DIR"] == workdir


def region_found(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {**env, "AWS_CONFIG_FILE": "/nowhere"}.items():
        monkeypatch.setenv(name, value)
    return Session().region_name


def test_boto3_finds_the_region_in_the_worker_and_in_every_ray_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECT_DIR", "/p")
    run = load_settings("plan/hyperpod", {"platform.hosting.region": "eu-west-1"})
    hosting = run.planned.hosting
    specs = [
        ray_cluster(hosting, "r", IMAGE)["spec"],
        ray_service(hosting, run.serve.server, IMAGE)["spec"]["rayClusterConfig"],
    ]
    for spec in specs:
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            (pod,) = group["template"]["spec"]["containers"]
            env = {entry["name"]: entry["value"] for entry in pod["env"]}
            assert region_found(env, monkeypatch) == "eu-west-1"
    assert region_found(environment(), monkeypatch) == "us-east-1"
    assert region_found({"AWS_REGION": "us-east-1"}, monkeypatch) is None, "the rule that the first worker broke"


def test_every_pod_of_the_service_becomes_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """KubeRay asks each worker of a RayService for ``localhost:<port "serve", else 8000>/-/healthz`` (pod.go,
    initReadinessProbeHandler); Serve runs a proxy on each node, on the head alone or nowhere (ProxyLocation)."""
    monkeypatch.setenv("PROJECT_DIR", "/p")
    run = load_settings("plan/hyperpod", {})
    service = ray_service(run.planned.hosting, run.serve.server, IMAGE)["spec"]
    serve = yaml.safe_load(service["serveConfigV2"])
    assert serve["proxy_location"] == "EveryNode"
    for group in service["rayClusterConfig"]["workerGroupSpecs"]:
        ports = group["template"]["spec"]["containers"][0].get("ports", [])
        asked = next((port["containerPort"] for port in ports if port["name"] == "serve"), 8000)
        assert serve["http_options"] == {"host": "0.0.0.0", "port": asked}


@pytest.fixture
def sts() -> Iterator[tuple[str, list[str]]]:
    """AssumeRoleWithWebIdentity (STS API reference), and the session names that it was asked for."""
    named: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def do_POST(self) -> None:
            sent = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            named.append(sent["RoleSessionName"][0])
            names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
            keys = "".join(f"<{name}>x</{name}>" for name in names) + "<Expiration>2099-01-01T00:00:00Z</Expiration>"
            kind = "AssumeRoleWithWebIdentity"
            result = f"<{kind}Result><Credentials>{keys}</Credentials></{kind}Result>"
            body = f'<{kind}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">{result}</{kind}Response>'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", named
    server.shutdown()
    server.server_close()


def test_the_worker_is_one_identity_however_often_its_credentials_are_renewed(
    tmp_path: Path, sts: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Pod Identity webhook of EKS adds role and token file where the service account is annotated (amazon-eks-pod-
    identity-webhook, README); the session's name is the container's own (botocore, AWS_ROLE_SESSION_NAME)."""
    address, named = sts
    (account,) = [doc for doc in yaml.safe_load_all(WORKER.read_text()) if doc["kind"] == "ServiceAccount"]
    (tmp_path / "token").write_text("a token")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    injected = {
        "AWS_ROLE_ARN": account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"],
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "AWS_ENDPOINT_URL_STS": address,
        "AWS_CONFIG_FILE": "/nowhere",
    }
    for name, value in {**environment(), **injected}.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        found = Session().get_credentials()
        assert found
        assert found.get_frozen_credentials().access_key == "x"
    assert named == ["maze-worker", "maze-worker"]
    monkeypatch.delenv("AWS_ROLE_SESSION_NAME")
    found = Session().get_credentials()
    assert found
    found.get_frozen_credentials()
    assert named[2] != "maze-worker", "what a run after a restart was refused for"
