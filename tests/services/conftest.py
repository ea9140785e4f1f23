"""The laptop's services, once for all tests that need them: own state folder, free ports, stopped by pid."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.local.services import Layout, LocalServices
from tests.services.canaries import FOR_SERVICES

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that points at them; what tests publish and deploy stays until the last test.

    Two Ray heads among them: a test that needs a cluster and not one of its own submits its jobs there, and leaves
    none running. Their environment holds planted secrets.
    """
    state = tmp_path_factory.mktemp("state")
    local = LocalServices(Layout(ROOT, state), say=print)
    try:
        with pytest.MonkeyPatch.context() as planted:
            for name, secret in FOR_SERVICES.items():
                planted.setenv(name, secret)
            env = local.up()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_AUTH_TOKEN_PATH", env["RAY_AUTH_TOKEN_PATH"])
            yield {**os.environ, **env, "PROJECT_DIR": str(ROOT), "PREFECT_HOME": str(state / "prefect-client")}
    finally:
        local.down()
