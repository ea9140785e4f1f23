"""The third door to clean-up: a run whose process is gone is cleaned up by a deployment that the server starts."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prefect.client.base import PrefectHttpxSyncClient
from prefect.settings import PREFECT_API_URL, temporary_settings

from tasks.cleanup.order import Order
from tasks.evidence.prefect_attempts import attempts_of

pytestmark = pytest.mark.slow_s(120)

ROOT = Path(__file__).resolve().parents[3]
PREFECT = str(Path(sys.executable).parent / "prefect")
CREATE = ("work-pool", "create", "--type", "process", "--overwrite")


def prefect(env: dict[str, str], *arguments: str) -> None:
    done = subprocess.run([PREFECT, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr


def created_runs(client: PrefectHttpxSyncClient, deployment_id: str) -> list[dict[str, Any]]:
    asked = {"flow_runs": {"deployment_id": {"any_": [deployment_id]}}}
    return client.post("/flow_runs/filter", json=asked).raise_for_status().json()


def test_a_run_that_crashed_is_cleaned_up_by_its_name(services: dict[str, str]) -> None:
    # Both at once: most of a command's time is its own start.
    with ThreadPoolExecutor() as both:
        list(both.map(lambda pool: prefect(services, *CREATE, pool), ("local", "hyperpod", "kuberay")))
    prefect(services, "--no-prompt", "deploy", "--all")
    # Prefect's own: while its database is busy the server answers 503, and means "again".
    with PrefectHttpxSyncClient(base_url=services["PREFECT_API_URL"], timeout=30) as client:

        def deployment(name: str) -> str:
            return client.get(f"/deployments/name/{name}").raise_for_status().json()["id"]

        made = client.post(f"/deployments/{deployment('retrain/local')}/create_flow_run", json={"name": "gone-1"})
        run_id = made.raise_for_status().json()["id"]
        crashed = {"state": {"type": "CRASHED", "name": "Crashed", "message": "its worker died"}, "force": True}
        client.post(f"/flow_runs/{run_id}/set_state", json=crashed).raise_for_status()
        cleanup_id, deadline = deployment("cleanup/local"), time.monotonic() + 60
        while not (found := created_runs(client, cleanup_id)) and time.monotonic() < deadline:
            time.sleep(0.2)
        (started,) = found
        knobs, settings = started["parameters"]["knobs"], started["parameters"]["platform"]
        assert (knobs["run_name"], knobs["dry_run"], settings["cleanup"]["remove"]) == ("gone-1", False, ["jobs"])
        assert settings["ended_flow_run"] == run_id
        assert settings["cluster"]["jobs_address"] == services["RAY_JOBS_ADDRESS"]
        # A second attempt under that name: the order, carried out only now, is overtaken.
        again = client.post(f"/deployments/{deployment('retrain/local')}/create_flow_run", json={"name": "gone-1"})
        with temporary_settings({PREFECT_API_URL: services["PREFECT_API_URL"]}):
            late = Order(run_id, attempts_of("gone-1"))
        assert {attempt.flow_run_id: attempt.is_over for attempt in late.attempts} == {
            run_id: True,
            again.raise_for_status().json()["id"]: False,
        }
        assert late.overtaken == f"flow run {again.json()['id']} is SCHEDULED under this name"
        # Runs on the laptop are no business of the cluster's clean-up.
        assert created_runs(client, deployment("cleanup/hyperpod")) == []
