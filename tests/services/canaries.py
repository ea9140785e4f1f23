"""Secrets planted where a run finds its own, and where they turn up afterwards."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path

FOR_SERVICES = {
    "MLFLOW_TRACKING_USERNAME": "canary-user-5b1e",
    "MLFLOW_TRACKING_PASSWORD": "canary-mlflow-93c7",
    "HF_TOKEN": "canary-hub-20ad",
    "WANDB_API_KEY": "canary-wandb-6f42",
}
"""In the environment of the clusters, and of the jobs that inherit it, as pods have theirs from a Secret."""
FOR_RUN = {**FOR_SERVICES, "MAZE_ENDPOINT_API_KEY": "canary-endpoint-77d0", "GITHUB_TOKEN": "canary-git-c81f"}
"""In the environment of whoever starts a run."""


def spellings(secrets: Mapping[str, str]) -> dict[str, bytes]:
    """What is searched for: each secret, and a login as a header brings it."""
    found = {name: value.encode() for name, value in secrets.items()}
    if {"MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"} <= secrets.keys():
        login = f"{secrets['MLFLOW_TRACKING_USERNAME']}:{secrets['MLFLOW_TRACKING_PASSWORD']}"
        found["MLflow's login as a header"] = base64.b64encode(login.encode())
    return found


def kept_in(folder: Path, wanted: Mapping[str, bytes]) -> Iterator[tuple[str, Path]]:
    """(name, file) of whatever is found in the files below; a database's rows are in its file, or in its log's."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            yield from ((name, path) for name, text in wanted.items() if text in content)
