"""What a Ray job is doing, as its cluster tells it: the tasks under way and the actors that are there.

For whoever asks why a job goes on no more. Stacks are not among it: Ray gives them out only where
``RAY_DASHBOARD_ENABLE_PROFILING`` is set (dashboard/modules/reporter/reporter_head.py); a job of ours prints its
own when it is stopped (rl/output.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import requests
from ray.dashboard.modules.dashboard_sdk import parse_cluster_info

from tasks.clients.ray_token import token_headers
from tasks.errors import StageError

TASK = ("state", "name", "func_or_class_name", "worker_pid", "node_id")
ACTOR = ("state", "class_name", "pid", "node_id", "death_cause")
MAX_ROWS = 100


def under_way(address: str, submission_id: str, timeout_s: float = 10.0) -> str:
    """A line for each task that runs and each actor; what cannot be asked is said in its place. Never raises."""
    try:
        session = parse_cluster_info(address, headers=token_headers(address))

        def ask(path: str) -> Any:
            answer = requests.get(
                f"{session.address}{path}", cookies=session.cookies, headers=session.headers, timeout=timeout_s
            )
            answer.raise_for_status()
            return answer.json()

        job_id = ask(f"/api/jobs/{submission_id}").get("job_id")
        if not job_id:
            return f"job {submission_id} has not connected to Ray\n"
        of_job = f"detail=1&limit={MAX_ROWS}&{_where('job_id', job_id)}"
        tasks = ask(f"/api/v0/tasks?{of_job}&{_where('state', 'RUNNING')}")
        actors = ask(f"/api/v0/actors?{of_job}")
        return "\n".join(["tasks that run:", *_rows(tasks, TASK), "actors:", *_rows(actors, ACTOR), ""])
    except (requests.RequestException, RuntimeError, ConnectionError, ValueError, KeyError, StageError) as error:
        return f"Ray does not say what job {submission_id} does: {error}\n"


def _where(name: str, value: str) -> str:
    return f"filter_keys={name}&filter_predicates=%3D&filter_values={value}"


def _rows(answer: Any, names: Sequence[str]) -> Iterator[str]:
    rows = answer["data"]["result"]["result"]
    for row in rows:
        yield "  " + ", ".join(f"{name} {_short(row[name])}" for name in names if row.get(name))
    if not rows:
        yield "  none"


def _short(value: Any) -> Any:
    """Of why an actor died its sentence only."""
    if not isinstance(value, Mapping):
        return value
    told = [
        cause["error_message"] for cause in value.values() if isinstance(cause, Mapping) and "error_message" in cause
    ]
    return told[0] if told else ", ".join(value)
