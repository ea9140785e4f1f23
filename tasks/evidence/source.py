"""What code a run or a deployment is of: commit, changes since, entry point. By git, where it knows the project."""

from __future__ import annotations

import subprocess
from pathlib import Path

from mlflow.utils.mlflow_tags import MLFLOW_GIT_BRANCH, MLFLOW_GIT_COMMIT, MLFLOW_SOURCE_NAME, MLFLOW_SOURCE_TYPE

PROJECT = Path(__file__).parents[2]
DIRTY_TAG = "maze.git_dirty"
"""Whether files differ from the commit: ``true`` says that the commit alone does not make this run again."""


def source_tags(entry_point: str, project: Path = PROJECT) -> dict[str, str]:
    """MLflow's own tags of a run's source; an image without git has no commit."""
    tags = {MLFLOW_SOURCE_NAME: entry_point, MLFLOW_SOURCE_TYPE: "PROJECT"}
    commit = _git(project, "rev-parse", "HEAD")
    if not commit:
        return tags
    branch, changed = _git(project, "rev-parse", "--abbrev-ref", "HEAD"), _git(project, "status", "--porcelain")
    dirty = {DIRTY_TAG: str(bool(changed)).lower()}
    return {**tags, MLFLOW_GIT_COMMIT: commit, **({MLFLOW_GIT_BRANCH: branch} if branch else {}), **dirty}


def code_version(project: Path = PROJECT) -> str:
    """The commit in 12 digits, ``+changes`` where files differ from it; ``unknown`` where git knows no commit."""
    commit = _git(project, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return "unknown"
    return f"{commit}+changes" if _git(project, "status", "--porcelain") else commit


def _git(project: Path, *arguments: str) -> str:
    """What git says; empty where it is not there or knows no repository."""
    try:
        said = subprocess.run(["git", *arguments], cwd=project, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip()
