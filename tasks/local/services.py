"""Which services the laptop runs, on which ports, with which environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.local.process import Processes, Running, Service, choose_port

PREFERRED_PORTS = {"prefect": 4200, "mlflow": 5500, "s3": 9900, "ray": 8265}
NUM_LOGICAL_GPUS = 2
"""One for the policy, one for the engine: numbers to schedule by, no devices."""


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


class LocalServices:
    """Starts what is missing, stops what it started, tells the addresses."""

    def __init__(self, layout: Layout, say: Callable[[str], object]) -> None:
        self._layout = layout
        self._say = say
        self._processes = Processes(layout.state / "services")

    def up(self) -> dict[str, str]:
        """Start every service that does not run; returns the environment that points at them."""
        launched = []
        for name in PREFERRED_PORTS:
            if (found := self._processes.running(name)) is not None:
                self._say(f"{name} is running (pid {found.pid}, port {found.port})")
                continue
            service = self._describe(name, choose_port(PREFERRED_PORTS[name], self._say, name))
            self._say(f"starting {name} on port {service.port}")
            self._processes.launch(service)
            launched.append(service)
        for service in launched:
            self._processes.wait(service)
        return self.environment()

    def down(self) -> None:
        """Stop them, in reverse order."""
        for name in reversed(PREFERRED_PORTS):
            self._say(f"{name} {'stopped' if self._processes.stop(name) else 'was not running'}")

    def environment(self) -> dict[str, str]:
        """Addresses of the running services as environment variables."""
        port = {name: found.port for name, found in self._found()}
        address = {name: f"http://127.0.0.1:{number}" for name, number in port.items()}
        names = {
            "prefect": "PREFECT_API_URL",
            "mlflow": "MLFLOW_TRACKING_URI",
            "s3": "AWS_ENDPOINT_URL",
            "ray": "RAY_JOBS_ADDRESS",
        }
        env = {names[name]: url + ("/api" if name == "prefect" else "") for name, url in address.items()}
        # A made-up identity for the local endpoint; the cluster uses the usual AWS chain.
        return env | {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_DEFAULT_REGION": "us-east-1"}

    def _found(self) -> Iterator[tuple[str, Running]]:
        for name in PREFERRED_PORTS:
            if (found := self._processes.running(name)) is not None:
                yield name, found

    def _describe(self, name: str, port: int) -> Service:
        return {"prefect": self._prefect, "mlflow": self._mlflow, "s3": self._s3, "ray": self._ray}[name](port)

    def _prefect(self, port: int) -> Service:
        argv = [str(self._layout.flows_bin / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        env = {
            "PREFECT_HOME": str(self._layout.state / "prefect"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
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
        return Service("mlflow", argv, {"MLFLOW_DISABLE_TELEMETRY": "true"}, port, f"http://127.0.0.1:{port}/health")

    def _s3(self, port: int) -> Service:
        argv = [str(self._layout.flows_bin / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
        return Service("s3", argv, {}, port, f"http://127.0.0.1:{port}/moto-api/")

    def _ray(self, port: int) -> Service:
        argv = [str(self._layout.train_bin / "python"), "-m", "tasks.local.ray_head", str(port), str(NUM_LOGICAL_GPUS)]
        env = {
            "PATH": f"{self._layout.train_bin}:{os.environ.get('PATH', '')}",
            "PYTHONPATH": str(self._layout.project),
            # A busy laptop takes longer than the 30 s that the dashboard's modules get to start.
            "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "300",
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "300",
            # Jobs get this long to end on their own when they are stopped; Ray's default is 3 s.
            "RAY_JOB_STOP_WAIT_TIME_S": "20",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        return Service("ray", argv, env, port, f"http://127.0.0.1:{port}/api/version", timeout_s=300.0)
