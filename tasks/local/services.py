"""Which services the laptop runs, on which ports, with which environment."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.local.process import Processes, Running, Service, choose_port, is_freed

PREFERRED_PORTS = {"prefect": 4200, "mlflow": 5500, "s3": 9900, "ray": 8265, "serve": 8300}
NUM_PORTS = {"serve": 2}
"""The endpoint listens one port on from its cluster's dashboard."""
RAY_TOKEN = "RAY_AUTH_TOKEN_PATH"
"""Ray's name for where the token lies that its servers want."""
NUM_LOGICAL_GPUS = 2
"""One for the policy, one for the engine: numbers to schedule by, no devices."""
LOCAL_BUCKET = "models"
LOCAL_IDENTITY = ("local", "local-endpoint-only")
"""A made-up identity for the endpoint on this machine; the cluster uses the usual AWS chain."""


@dataclass(frozen=True)
class Layout:
    """Where things lie."""

    project: Path
    state: Path

    @property
    def flows_bin(self) -> Path:
        return self.project / ".venv" / "bin"

    @property
    def train_bin(self) -> Path:
        return self.project / ".venv-train" / "bin"

    @property
    def serve_bin(self) -> Path:
        return self.project / ".venv-serve" / "bin"


class LocalServices:
    """Starts what is missing, stops what it started, tells the addresses."""

    def __init__(self, layout: Layout, say: Callable[[str], object]) -> None:
        self._layout = layout
        self._say = say
        self._processes = Processes(layout.state / "services")

    def up(self, names: Sequence[str] = tuple(PREFERRED_PORTS)) -> dict[str, str]:
        """Start every service that does not run; returns the environment that points at them."""
        launched = []
        for name in names:
            if (found := self._processes.running(name)) is not None:
                self._say(f"{name} is running (pid {found.pid}, port {found.port})")
                continue
            died = self._processes.recorded(name)
            if orphans := self._processes.orphans(name):
                pids = ", ".join(str(process.pid) for process in orphans)
                self._say(f"{name}'s first process is gone; ending what it left (pid {pids})")
                self._processes.stop(name)
            # Links that people have keep leading to what died and comes back.
            preferred = died.port if died and is_freed(died.port) else PREFERRED_PORTS[name]
            port = choose_port(preferred, self._say, name, NUM_PORTS.get(name, 1))
            service = self._describe(name, port)
            self._say(f"starting {name} on port {service.port}")
            self._processes.launch(service)
            launched.append(service)
        for service in launched:
            self._processes.wait(service)
        return self.environment()

    def down(self) -> None:
        """Stop them, in reverse order, and what those left whose first process is gone."""
        for name in reversed(PREFERRED_PORTS):
            what = f"{name}, whose first process was gone," if self._processes.orphans(name) else name
            self._say(f"{what} stopped" if self._processes.stop(name) else f"{name} was not running")

    def running(self) -> dict[str, Running]:
        """Services that run, by name."""
        return dict(self._found())

    def environment(self) -> dict[str, str]:
        """Addresses of the running services as environment variables."""
        port = {name: found.port for name, found in self._found()}
        address = {name: f"http://127.0.0.1:{number}" for name, number in port.items()}
        names = {
            "prefect": "PREFECT_API_URL",
            "mlflow": "MLFLOW_TRACKING_URI",
            "ray": "RAY_JOBS_ADDRESS",
            "serve": "SERVE_DASHBOARD",
        }
        env = {
            names[name]: address[name] + ("/api" if name == "prefect" else "") for name in names.keys() & port.keys()
        }
        if "serve" in port:
            listen = f"127.0.0.1:{port['serve'] + 1}"
            env |= {"SERVE_LISTEN": listen, "SERVE_URL": f"http://{listen}"}
        if {"ray", "serve"} & port.keys():
            env[RAY_TOKEN] = str(self._ray_token())
        return env | self._aws()

    def _aws(self) -> dict[str, str]:
        """What the usual AWS chain finds on this machine."""
        key_id, secret = LOCAL_IDENTITY
        identity = {"AWS_ACCESS_KEY_ID": key_id, "AWS_SECRET_ACCESS_KEY": secret, "AWS_DEFAULT_REGION": "us-east-1"}
        s3 = self._processes.running("s3")
        return identity | ({"AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3.port}"} if s3 else {})

    def _found(self) -> Iterator[tuple[str, Running]]:
        for name in PREFERRED_PORTS:
            if (found := self._processes.running(name)) is not None:
                yield name, found

    def _describe(self, name: str, port: int) -> Service:
        describe = {
            "prefect": self._prefect,
            "mlflow": self._mlflow,
            "s3": self._s3,
            "ray": self._ray,
            "serve": self._serve,
        }
        return describe[name](port)

    def _prefect(self, port: int) -> Service:
        argv = [str(self._layout.flows_bin / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        env = {
            "PREFECT_HOME": str(self._layout.state / "prefect"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
            "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        }
        return Service("prefect", argv, env, port, f"http://127.0.0.1:{port}/api/health")

    def _mlflow(self, port: int) -> Service:
        folder = self._layout.state / "mlflow"
        folder.mkdir(parents=True, exist_ok=True)
        argv = [
            str(self._layout.flows_bin / "mlflow"),
            "server",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--workers",
            "1",
            "--backend-store-uri",
            f"sqlite:///{folder / 'mlflow.db'}",
            "--artifacts-destination",
            str(folder / "artifacts"),
        ]
        env = {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            # Nobody asks MLflow for jobs, and their eight processes each import all of it.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        }
        return Service("mlflow", argv, env, port, f"http://127.0.0.1:{port}/health")

    def _s3(self, port: int) -> Service:
        folder = self._layout.state / "s3"
        (folder / LOCAL_BUCKET).mkdir(parents=True, exist_ok=True)
        argv = [str(self._layout.flows_bin / "rclone"), "serve", "s3", str(folder), "--addr", f"127.0.0.1:{port}"]
        # By the environment: an argument could be read in the process table.
        env = {
            "RCLONE_AUTH_KEY": '"' + ",".join(LOCAL_IDENTITY) + '"',
            "RCLONE_CONFIG": str(self._layout.state / "rclone.conf"),
        }
        return Service("s3", argv, env, port, f"http://127.0.0.1:{port}/")

    def _ray(self, port: int) -> Service:
        return self._ray_head("ray", self._layout.train_bin, port, NUM_LOGICAL_GPUS)

    def _serve(self, port: int) -> Service:
        """A cluster of its own for serving, as on AWS: other versions, other lifetime. Its endpoint is one port on."""
        return self._ray_head("serve", self._layout.serve_bin, port, 0)

    def _ray_head(self, name: str, bin_folder: Path, port: int, num_gpus: int) -> Service:
        argv = [str(bin_folder / "python"), "-m", "tasks.local.ray_head", str(port), str(num_gpus)]
        env = {
            "PATH": f"{bin_folder}:{os.environ.get('PATH', '')}",
            "PYTHONPATH": str(self._layout.project),
            # A busy laptop takes longer than the 30 s that the dashboard's modules get to start.
            "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "300",
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "300",
            # Jobs get this long to end on their own when they are stopped; Ray's default is 3 s.
            "RAY_JOB_STOP_WAIT_TIME_S": "20",
            "RAY_USAGE_STATS_ENABLED": "0",
            # Whoever can reach a cluster can run code in it; other accounts of this machine reach loopback, too.
            "RAY_AUTH_MODE": "token",
            RAY_TOKEN: str(self._ray_token()),
            # Named for where it is the default: a cluster of one machine, its servers on loopback and nowhere else.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            # vLLM looks for an address of its own.
            "VLLM_HOST_IP": "127.0.0.1",
            # Jobs and replicas inherit their identity, as pods do from Pod Identity.
            **self._aws(),
        }
        return Service(name, argv, env, port, f"http://127.0.0.1:{port}/api/version", timeout_s=300.0)

    def _ray_token(self) -> Path:
        """The file with the token of the local clusters, made when it is first asked for; its owner alone reads it."""
        path = self._layout.state / "services" / "ray_token"
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(32))
        except FileExistsError:
            pass
        return path
