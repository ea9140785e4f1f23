"""A docker configuration for one build: everything of the user's own, and the login to one registry."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tasks.image.registry import Credentials

LINKED = ("cli-plugins", "contexts")


@contextmanager
def docker_environment(env: Mapping[str, str], host: str, credentials: Credentials | None) -> Iterator[dict[str, str]]:
    """``env`` with a DOCKER_CONFIG that holds the login and is deleted afterwards; docker login would leave it behind.

    Named builders lie in the user's own folder, so buildx is told to go on looking there.
    """
    own = Path(env.get("DOCKER_CONFIG") or Path(env.get("HOME", "/"), ".docker"))
    # TemporaryDirectory makes it 0700.
    with tempfile.TemporaryDirectory(prefix="docker-config-") as made:
        folder = Path(made)
        for name in LINKED:
            if (own / name).is_dir():
                (folder / name).symlink_to((own / name).resolve())
        config = _config(own / "config.json", host, credentials)
        with os.fdopen(os.open(folder / "config.json", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            json.dump(config, file)
        buildx = env.get("BUILDX_CONFIG") or str(own / "buildx")
        yield {**env, "DOCKER_CONFIG": made, "BUILDX_CONFIG": buildx}


def _config(path: Path, host: str, credentials: Credentials | None) -> dict[str, object]:
    config = json.loads(path.read_text()) if path.is_file() else {}
    if credentials is None:
        return config
    auth = base64.b64encode(f"{credentials.user}:{credentials.password}".encode()).decode()
    config["auths"] = {**config.get("auths", {}), host: {"auth": auth}}
    # A credential store would be asked instead of this file; an empty helper means: not for this host.
    config["credHelpers"] = {**config.get("credHelpers", {}), host: ""}
    return config
