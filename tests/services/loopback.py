"""A Ray cluster of several nodes on loopback: a head without GPUs, workers with two logical ones each.

Every node is a process of our own with its own environment, found again by pid. What a node's PYTHONPATH, PATH and
mounts show can be changed under it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import requests

from tasks.clients.ray_token import token_headers
from tasks.local.process import Processes, Service
from tasks.local.services import Layout, LocalServices

NUM_GPUS_EACH = 2


def wait_until(holds: Callable[[], bool], timeout_s: float = 240.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s"
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Loopback:
    """The cluster and the folders that make its nodes differ."""

    def __init__(self, project: Path, num_workers: int = 3) -> None:
        self.workers = tuple(f"worker-{number}" for number in range(num_workers))
        # Short: Ray's sockets lie below, and their paths may have 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))
        self._layout = Layout(project, self.folder / "state")
        self._processes = Processes(self.folder / "nodes")
        self._python = str(self._layout.train_bin / "python")
        self._token_before = {name: os.environ[name] for name in ("RAY_AUTH_TOKEN_PATH",) if name in os.environ}
        self.jobs_address = f"http://127.0.0.1:{free_port()}"
        self.split, self._apart = self.folder / "split", self.folder / "apart"
        """A folder in place of which the last worker sees another one, as if its mount were lost."""
        for path in (self.split, self._apart, *map(self.site, self.workers), *map(self.bin, self.workers)):
            path.mkdir(parents=True)

    def site(self, worker: str) -> Path:
        """First on the worker's PYTHONPATH."""
        return self.folder / worker / "site"

    def bin(self, worker: str) -> Path:
        """First on the worker's PATH."""
        return self.folder / worker / "bin"

    def start(self) -> None:
        """S3, then the head, whose jobs take the identity from there, then all workers; returns when Ray knows them."""
        local = LocalServices(self._layout, print)
        Processes(self._layout.state / "services").start(local._s3(free_port()))
        port = int(self.jobs_address.rpartition(":")[2])
        plain = local._ray_head("head", self._layout.train_bin, port, 0)
        os.environ["RAY_AUTH_TOKEN_PATH"] = plain.env["RAY_AUTH_TOKEN_PATH"]
        env = {**plain.env, "TMPDIR": str(self.folder), "PYTHONDONTWRITEBYTECODE": ""}
        head = Service("head", plain.argv, env, port, plain.health_url, 120)
        self._processes.start(head)
        # The head writes it when its dashboard answers already.
        wait_until(lambda: bool(list(self.folder.glob("ray-*/ray_current_cluster"))))
        (address_file,) = self.folder.glob("ray-*/ray_current_cluster")
        for worker in self.workers:
            self._processes.launch(self._worker(worker, address_file.read_text().strip(), head))
        wait_until(lambda: len(self.node_ids()) == 1 + len(self.workers))

    def identity(self) -> dict[str, str]:
        """The environment that the S3 endpoint knows."""
        return {**os.environ, **LocalServices(self._layout, print).environment()}

    def stop(self) -> None:
        """Every process by its pid, workers first; then the folders."""
        for name in (*self.workers, "head"):
            self._processes.stop(name)
        Processes(self._layout.state / "services").stop("s3")
        os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
        os.environ.update(self._token_before)
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop_worker(self, worker: str) -> None:
        """As if its machine went away; returns when Ray has noticed."""
        self._processes.stop(worker)
        wait_until(lambda: worker not in self.node_ids())

    def pid(self, worker: str) -> int:
        running = self._processes.running(worker)
        assert running is not None
        return running.pid

    def node_ids(self) -> dict[str, str]:
        """Ids of the nodes that live, by worker; the head's by ``head``."""
        headers = token_headers(self.jobs_address)
        answer = requests.get(f"{self.jobs_address}/api/v0/nodes?detail=1", headers=headers, timeout=30).json()
        alive = [node for node in answer["data"]["result"]["result"] if node["state"] == "ALIVE"]
        names = [next((w for w in self.workers if w in node["resources_total"]), "head") for node in alive]
        return {name: node["node_id"] for name, node in zip(names, alive, strict=True)}

    def _worker(self, name: str, gcs_address: str, head: Service) -> Service:
        params = {
            "gcs_address": gcs_address,
            "node_ip_address": gcs_address.partition(":")[0],
            "num_cpus": 2,
            "num_gpus": NUM_GPUS_EACH,
            "resources": {name: 1},
            "object_store_memory": 100_000_000,
            # Nodes that start at the same moment would take the same names.
            "raylet_socket_name": f"{self.folder}/{name}/raylet",
            "plasma_store_socket_name": f"{self.folder}/{name}/plasma",
            "dashboard_agent_listen_port": free_port(),
        }
        start = [self._python, str(Path(__file__).parent / "ray_node.py"), json.dumps(params)]
        if name == self.workers[-1] and can_mount():
            mount = 'mount --bind "$0" "$1" && shift && exec "$@"'
            start = ["unshare", "-m", "sh", "-c", mount, str(self._apart), str(self.split), *start]
        env = {
            **head.env,
            "PATH": f"{self.bin(name)}:{head.env['PATH']}",
            "PYTHONPATH": f"{self.site(name)}:{head.env['PYTHONPATH']}",
        }
        return Service(name, start, env, 0, "")


def can_mount() -> bool:
    """Whether a process here may have mounts of its own."""
    with tempfile.TemporaryDirectory() as folder:
        probe = ["unshare", "-m", "mount", "--bind", folder, folder]
        return os.name == "posix" and subprocess.run(probe, capture_output=True).returncode == 0
