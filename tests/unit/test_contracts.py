"""The architecture: import rules, light imports, and no module that acts when it is imported."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prefect import Task

ROOT = Path(__file__).resolve().parents[2]
LIGHT = ["flows.settings.retrain", "tasks.settings", "tasks.records", "rl.settings", "rl.maze.score", "rl.events"]
HEAVY = ["torch", "vllm", "skyrl", "ray", "mlflow", "prefect", "pandas", "boto3", "transformers"]


def python(code: str, **env: str) -> str:
    environment = {**os.environ, **env}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_rules_hold() -> None:
    done = subprocess.run([Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("module", LIGHT)
def test_settings_and_records_are_cheap_to_import(module: str) -> None:
    loaded = python(f"import sys, {module}; print(*sys.modules)").split()
    assert not set(HEAVY) & set(loaded)


def test_docker_stays_a_plain_folder() -> None:
    # With an __init__.py it would shadow the docker package that Prefect installs.
    assert not (ROOT / "docker" / "__init__.py").exists()


def test_importing_the_flows_touches_no_file_and_no_server(tmp_path: Path) -> None:
    out = python(
        "import os, sys; sys.path.insert(0, os.getcwd()); os.chdir(os.environ['EMPTY']); "
        "import flows.retrain, flows.base_model, flows.evaluate, flows.champion, flows.cli.chat, bench.serving; "
        "print(os.listdir('.'))",
        EMPTY=str(tmp_path),
        # Nobody answers there: an import that asked a server would fail.
        PREFECT_API_URL="http://127.0.0.1:1/api",
        MLFLOW_TRACKING_URI="http://127.0.0.1:1",
    )
    assert out.strip() == "[]"


def test_no_tracked_lock_file_names_a_host() -> None:
    for lock in (ROOT / "locks").glob("*.txt"):
        assert "://" not in lock.read_text(), lock


@pytest.mark.parametrize("name", ["retrain", "evaluate", "base_model", "champion", "clusters", "plan"])
def test_a_stage_takes_the_context_its_own_settings_and_records_four_arguments_at_most(name: str) -> None:
    stages = [value for value in vars(importlib.import_module(f"flows.{name}")).values() if isinstance(value, Task)]
    assert stages
    for stage in stages:
        parameters = list(inspect.signature(stage.fn).parameters)
        assert parameters[0] == "context", stage.name
        assert len(parameters) <= 4, stage.name
