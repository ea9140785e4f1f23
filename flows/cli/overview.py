"""What runs, what ran, who is champion: tables from MLflow, Prefect and the registry."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from flows.cli.result import table
from flows.cli.words import duration
from tasks.clients.mlflow_history import PastRun
from tasks.training.figures import STEP

ADDRESSES = {"prefect": "PREFECT_API_URL", "mlflow": "MLFLOW_TRACKING_URI", "s3": "AWS_ENDPOINT_URL"}
ADDRESSES |= {"ray": "RAY_JOBS_ADDRESS", "serve": "SERVE_DASHBOARD"}


def services_table(pids: Mapping[str, int], addresses: Mapping[str, str]) -> Table:
    """Which services of this machine run, and where."""
    rows = [
        (name, f"runs, pid {pids[name]}" if name in pids else "does not run", addresses.get(variable, ""))
        for name, variable in ADDRESSES.items()
    ]
    return table([("service", False), ("state", False), ("address", False)], rows)


def running_line(run: PastRun, is_known: bool) -> str:
    """One run under way: its step, the time that is left, how it does. ``is_known``: Prefect says that it runs."""
    total, pace_s = run.param("max_steps"), run.metrics.get(STEP)
    parts = [f"step {run.step} of {total}" if total else f"step {run.step}"]
    if total.isdigit() and pace_s:
        parts.append(f"{duration(pace_s * max(0, int(total) - run.step))} left in training")
    if (rate := run.metrics.get("eval/solve_rate")) is not None:
        parts.append(f"the last evaluation solved {rate:.0%}")
    if not is_known:
        parts.append("no flow run works on it: its process is gone, `maze-retrain cleanup` looks after what is left")
    return f"{run.name}: {', '.join(parts)}"


def runs_table(runs: Sequence[PastRun]) -> RenderableType:
    """The last runs."""
    if not runs:
        return Text("no run yet; `maze-retrain run` makes one")
    columns = [("run", False), ("state", False), ("began", False), ("steps", True), ("solved", True)]
    columns += [("gate", False), ("took", True)]
    return table(columns, [_row(run) for run in runs], can_fold=False)


def _row(run: PastRun) -> tuple[object, ...]:
    rate = run.best_solve_rate
    took = f"{(run.ended_ms - run.started_ms) / 60_000:.0f} min" if run.ended_ms else ""
    began = f"{datetime.fromtimestamp(run.started_ms / 1000, UTC):%m-%d %H:%M}"
    rated = "" if rate is None else f"{rate:.0%}"
    return run.name, run.state.lower(), began, run.step, rated, run.decision, took


def flow_runs_under_way(api_url: str, timeout_s: float = 5.0) -> set[str]:
    """Names of the flow runs that Prefect says are running; raises OSError where it does not answer."""
    wanted = {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}}}
    request = urllib.request.Request(
        f"{api_url}/flow_runs/filter", json.dumps(wanted).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        return {run["name"] for run in json.load(answer)}


def under_way(runs: Sequence[PastRun]) -> list[str]:
    """A line for each run that MLflow calls running."""
    try:
        known = flow_runs_under_way(os.environ.get("PREFECT_API_URL", ""))
    except (OSError, ValueError):
        return [running_line(run, True) for run in runs]
    return [running_line(run, run.name in known) for run in runs]
