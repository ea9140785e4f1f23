"""The deployments of prefect.yaml, registered with Prefect's server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rich.console import Console

from flows.deployments import deployments
from tasks.errors import StageError


class NotRegistered(StageError):
    """Prefect's command ended with an error."""


def register(console: Console, profile: str = "local") -> None:
    """Register what the pools of a profile serve, ``local``'s always; raises NotRegistered with Prefect's words."""
    pools = sorted({"local", profile})
    found = {name: entry for name, entry in deployments().items() if entry["work_pool"]["name"] in pools}
    for pool in pools:
        _prefect("work-pool", "create", pool, "--type", "process", "--overwrite")
    _prefect("--no-prompt", "deploy", *(word for name in sorted(found) for word in ("-n", name)))
    console.print(f"{len(found)} deployments are registered: {', '.join(sorted(found))}", soft_wrap=True)


def _prefect(*arguments: str) -> None:
    program = str(Path(sys.executable).with_name("prefect"))
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise NotRegistered(f"prefect {' '.join(arguments[:2])} failed: {said[-1] if said else 'no word'}")
