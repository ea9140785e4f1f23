"""``sagemaker_ray://`` through AWS's toolkit and CLI, to a real Ray behind a gate that speaks HyperPod's exchange."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import aiohttp.connector
import pytest
import trustme
import yaml

from tasks.cleanup.in_ray import Jobs
from tasks.cleanup.order import Order
from tasks.errors import ClusterUnreachable, SubmissionRefused
from tasks.jobs.follow import FollowLimits, follow_job
from tasks.jobs.news import JobNews
from tasks.jobs.ray_jobs import OPENING_PAUSES_S, RayJobs, cluster_resources
from tasks.jobs.submit import submit_once
from tasks.local.services import NUM_LOGICAL_GPUS
from tests.recording import RecordingPage, recording
from tests.services.jobs.hyperpod_endpoint import HyperPodEndpoint, serving
from tests.services.loopback import wait_until

pytestmark = pytest.mark.slow_s(55)

ROOT = Path(__file__).resolve().parents[3]
ADDRESS = "sagemaker_ray://maze-train/maze"
OWNER, STRANGER = "AKIAOWNER", "AKIASTRANGER"
COUNTING = """
import sys, time
for number in range(20):
    sys.stdout.write(f"line {number} be"); sys.stdout.flush(); time.sleep(0.1)
    sys.stdout.write("gins and ends\\n"); sys.stdout.flush()
"""


@pytest.fixture
def endpoint(services: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HyperPodEndpoint]:
    """The gate before the dashboard, and an environment that leads to it as the worker's does on AWS."""
    authority, gate = trustme.CA(), HyperPodEndpoint(services["RAY_JOBS_ADDRESS"], OWNER)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    trusted = aiohttp.connector._make_ssl_context(True)
    authority.configure_trust(trusted)
    # requests looks the bundle up for each request; aiohttp has looked when it was imported.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", trusted)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", OWNER)
    with serving(gate, authority) as address:
        (tmp_path / "kubeconfig").write_text(kubeconfig(address, bundle))
        yield gate


def kubeconfig(server: str, bundle: Path) -> str:
    """What ``aws eks update-kubeconfig`` writes."""
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": ["--region", "us-east-1", "eks", "get-token", "--cluster-name", "maze-eks", "--output", "json"],
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "maze",
        "contexts": [{"name": "maze", "context": {"cluster": "maze-eks", "user": "worker"}}],
        "clusters": [{"name": "maze-eks", "cluster": {"server": server, "certificate-authority": str(bundle)}}],
        "users": [{"name": "worker", "user": {"exec": plugin}}],
    }
    return str(yaml.safe_dump(document))


def python(code: str) -> str:
    return shlex.join([str(ROOT / ".venv-train/bin/python"), "-c", code])


def test_a_job_outlives_its_session_and_no_line_of_it_is_lost(endpoint: HyperPodEndpoint) -> None:
    wait_until(lambda: cluster_resources(ADDRESS)["gpus_total"] == NUM_LOGICAL_GPUS, 60)
    jobs = RayJobs(ADDRESS)
    submission_id = submit_once(jobs, "session-train", python(COUNTING))
    endpoint.breaks_after = "line 7 be"
    page = RecordingPage([])
    sinks = JobNews(replace(recording()[0], page=page))
    follow_job(jobs, submission_id, sinks, FollowLimits(stall_timeout_s=60, reconnect_s=0.1))
    assert [line for line in page.said if line.startswith("line")] == [
        f"line {number} begins and ends" for number in range(20)
    ]
    assert endpoint.breaks_after == ""
    assert [asked for asked in endpoint.asked if asked != "session"] == [
        f"connection to maze-train by {OWNER}",
        f"connection to maze-train by {OWNER}",
        f"/api/jobs/{submission_id} without a session",
        f"connection to maze-train by {OWNER}",
    ]


def test_whoever_comes_back_finds_the_job_stops_it_and_cleans_up_twice(endpoint: HyperPodEndpoint) -> None:
    marks = {"maze.run_name": "again", "maze.flow_run_id": "f-1"}
    command = python("import time; time.sleep(600)")
    submission_id = submit_once(RayJobs(ADDRESS), "again-train", command, metadata=marks)
    jobs = RayJobs(ADDRESS)
    assert jobs.metadata(submission_id).items() >= marks.items()
    assert submit_once(jobs, "again-train", command) == submission_id
    wait_until(lambda: jobs.state(submission_id).status == "RUNNING", 60)
    left = Jobs(lambda: RayJobs(ADDRESS), lambda: False, Order(), timeout_s=60)
    (found,) = left.find("again")
    assert found.name == submission_id
    left.remove("again", found)
    assert jobs.state(submission_id).status == "STOPPED"
    assert left.find("again") == []
    left.remove("again", found)


def test_a_token_service_that_stumbles_is_asked_again(endpoint: HyperPodEndpoint) -> None:
    slept: list[float] = []
    endpoint.stumbles = 2
    RayJobs(ADDRESS, sleep=slept.append)
    assert slept == list(OPENING_PAUSES_S)
    endpoint.stumbles = 10
    with pytest.raises(ClusterUnreachable, match="Token service temporarily unavailable"):
        cluster_resources(ADDRESS, sleep=slept.append)


def test_refusals_say_whose_they_are_and_are_not_repeated(
    endpoint: HyperPodEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", STRANGER)
    with pytest.raises(SubmissionRefused, match=r"answers 401 .* the credentials have expired; log in again"):
        RayJobs(ADDRESS)
    endpoint.identities.add(STRANGER)
    with pytest.raises(
        SubmissionRefused, match=r"only the identity that created the RayCluster .*cleanup, then run again"
    ):
        RayJobs(ADDRESS)
    assert endpoint.asked == [f"connection to maze-train by {STRANGER}"] * 2


def test_a_cluster_that_is_not_there_and_an_endpoint_that_is_off_say_so(
    endpoint: HyperPodEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ClusterUnreachable, match="Verify the cluster name and namespace"):
        RayJobs("sagemaker_ray://maze-train/elsewhere")
    silent = Jobs(lambda: RayJobs("sagemaker_ray://gone/maze"), lambda: False, Order(), timeout_s=1)
    with pytest.raises(ClusterUnreachable):
        silent.find("run")
    endpoint.is_public_endpoint_on = False
    with pytest.raises(ClusterUnreachable, match="The public endpoint may not be enabled"):
        RayJobs(ADDRESS)
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    with pytest.raises(ClusterUnreachable, match=r"Kubeconfig not found at '/nowhere'.*aws eks update-kubeconfig"):
        RayJobs(ADDRESS)
