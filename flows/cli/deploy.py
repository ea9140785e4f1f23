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


def register(console: Console) -> None:
    """Make the work pools and register every deployment; raises NotRegistered with Prefect's words."""
    found = deployments()
    for pool in sorted({entry["work_pool"]["name"] for entry in found.values()}):
        _prefect("work-pool", "create", pool, "--type", "process", "--overwrite")
    _prefect("--no-prompt", "deploy", "--all")
    console.print(f"{len(found)} deployments are registered: {', '.join(sorted(found))}", soft_wrap=True)


def _prefect(*arguments: str) -> None:
    program = str(Path(sys.executable).with_name("prefect"))
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise NotRegistered(f"prefect {' '.join(arguments[:2])} failed: {said[-1] if said else 'no word'}")
