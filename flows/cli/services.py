"""Where the services answer: those that `maze-retrain up` keeps here, or others that the environment names."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from tasks.addresses import addresses_with_login
from tasks.local.services import RAY_TOKEN, Layout, LocalServices

ROOT = Path(__file__).resolve().parents[2]
STORE = "AWS_ENDPOINT_URL"
IDENTITY = (STORE, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")
SERVICE_OF = {
    "PREFECT_API_URL": "Prefect",
    STORE: "the object store",
    "MLFLOW_TRACKING_URI": "MLflow",
    "RAY_JOBS_ADDRESS": "the Ray cluster that trains",
    "SERVE_DASHBOARD": "the Ray cluster that serves",
    "SERVE_URL": "the Ray cluster that serves",
    "SERVE_LISTEN": "the Ray cluster that serves",
}
TELL_NOBODY = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
"""Prefect's client reports to its makers, says so on the screen, and where nobody answers ends with a traceback."""
START = "start them with `maze-retrain up`"


class NotRunning(RuntimeError):
    """Services that a command needs do not run."""


class BadKnob(ValueError):
    """What was typed cannot be run; one line for each reason."""


def local_services(say: Callable[[str], object]) -> LocalServices:
    return LocalServices(Layout(ROOT, ROOT / ".local"), say)


def enter_project() -> None:
    """Work in the project's folder, with the addresses of what runs here; one that the environment has stays.

    Raises BadKnob where one of the environment's holds a login.
    """
    if refused := addresses_with_login(os.environ):
        raise BadKnob("\n".join(f"{name}: {why}" for name, why in refused.items()))
    os.chdir(ROOT)
    defaults = {"PROJECT_DIR": str(ROOT), "PREFECT_HOME": str(ROOT / ".local" / "prefect"), **TELL_NOBODY}
    found = {name: value for name, value in _running().items() if name not in (*IDENTITY, RAY_TOKEN)}
    for name, value in {**defaults, **found}.items():
        os.environ.setdefault(name, value)


def take_local_store() -> None:
    """The object store of this machine and its made-up identity, unless the environment names another store."""
    if STORE not in os.environ:
        found = _running()
        os.environ.update({name: found[name] for name in IDENTITY if STORE in found})


def take_ray_token() -> None:
    """The token of this machine's Ray clusters, unless the environment names one; no other cluster gets it."""
    found = _running()
    if RAY_TOKEN in found:
        os.environ.setdefault(RAY_TOKEN, found[RAY_TOKEN])


def _running() -> dict[str, str]:
    return local_services(lambda text: None).environment()


def require(names: Sequence[str]) -> None:
    """Raises NotRunning with the services that these addresses belong to, where the environment has none."""
    missing = dict.fromkeys(SERVICE_OF.get(name, name) for name in names if not os.environ.get(name))
    if missing:
        verb = "does" if len(missing) == 1 else "do"
        raise NotRunning(f"{', '.join(missing)} {verb} not run here; {START}")
