"""The deployments of prefect.yaml, registered with Prefect's server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate
from rich.console import Console

from flows.cli.services import BadKnob
from flows.deployments import deployments, settings_type
from flows.parts import bounds
from tasks.errors import StageError
from tasks.evidence.source import code_version


class NotRegistered(StageError):
    """Prefect's command ended with an error."""


def register(console: Console, profile: str) -> None:
    """Register what workers of this profile's pool run, with the version of the code.

    Raises BadKnob where there is no such pool, NotRegistered with Prefect's words.
    """
    version, pools = code_version(), {name: entry["work_pool"]["name"] for name, entry in deployments().items()}
    names = sorted(name for name, pool in pools.items() if pool == profile)
    if not names:
        raise BadKnob(f"there is no profile {profile}; there are {', '.join(sorted(set(pools.values())))}")
    _prefect(version, "work-pool", "create", profile, "--type", "process", "--overwrite")
    _prefect(version, "--no-prompt", "deploy", *(word for name in names for word in ("-n", name)))
    for name in names:
        _bound_knobs(name)
    console.print(f"{len(names)} deployments of version {version} are registered:")
    for name in names:
        console.print(f"  {name:<22} {deployments()[name]['description']}", soft_wrap=True)
    if profile == "local":
        console.print(f"start one at {_page()}; `maze-retrain worker` runs it", soft_wrap=True)


def _bound_knobs(name: str) -> None:
    """Prefect's server is told which knobs the platform bounds: its form refuses what does not fit before a run."""
    conditions = bounds(settings_type(name), deployments()[name]["parameters"]["platform"])
    if not conditions:
        return
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name(name)
        schema = {**(deployment.parameter_openapi_schema or {}), "allOf": conditions}
        client.update_deployment(deployment.id, DeploymentUpdate(parameter_openapi_schema=schema))


def _page() -> str:
    return f"{os.environ['PREFECT_API_URL'].removesuffix('/').removesuffix('/api')}/deployments"


def _prefect(version: str, *arguments: str) -> None:
    program = str(Path(sys.executable).with_name("prefect"))
    env = {**os.environ, "CODE_VERSION": version}
    done = subprocess.run([program, *arguments], env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise NotRegistered(f"prefect {' '.join(arguments[:2])} failed: {said[-1] if said else 'no word'}")
