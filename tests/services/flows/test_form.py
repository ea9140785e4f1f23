"""What somebody meets who knows only Prefect's pages: the real deployment's form, in a real browser.

Prefect's server and a worker run here; the run's own services do not, so that a run ends soon after it began.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, sync_playwright

from flows.knobs import Knobs

ROOT = Path(__file__).resolve().parents[3]
PREFECT = ROOT / ".venv" / "bin" / "prefect"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
TITLES = [
    "Run name (Optional)",
    "Steps",
    "Mazes per step",
    "Rollouts per maze",
    "Learning rate",
    "Temperature",
    "Evaluation interval (steps)",
    "Export interval (steps)",
    "Seed",
    "Promote",
    "Note (Optional)",
]

pytestmark = [
    pytest.mark.slow_s(180),
    pytest.mark.skipif(not CHROMIUM, reason="no browser here; apt-get install chromium runs these"),
]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("prefect")
    api = f"http://127.0.0.1:{free_port()}/api"
    nobody = f"http://127.0.0.1:{free_port()}"
    return {
        **os.environ,
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": api,
        "PREFECT_UI_API_URL": api,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PROJECT_DIR": str(ROOT),
        **dict.fromkeys(("RAY_JOBS_ADDRESS", "MLFLOW_TRACKING_URI", "SERVE_DASHBOARD", "SERVE_URL"), nobody),
        "SERVE_LISTEN": nobody.removeprefix("http://"),
    }


@pytest.fixture(scope="module")
def prefect(env: dict[str, str]) -> Iterator[httpx.Client]:
    """Its server with retrain/local, as `make deploy` registers it, and a worker."""

    def command(*words: str) -> None:
        subprocess.run([PREFECT, *words], cwd=ROOT, env=env, check=True, capture_output=True, timeout=180)

    port = httpx.URL(env["PREFECT_API_URL"]).port
    log = (Path(env["PREFECT_HOME"]) / "server.log").open("w")
    started = [subprocess.Popen([PREFECT, "server", "start", "--port", str(port)], env=env, stdout=log, stderr=log)]
    try:
        with httpx.Client(base_url=env["PREFECT_API_URL"], timeout=30) as client:
            until(lambda: answers(client), "Prefect's server")
            command("work-pool", "create", "local", "--type", "process")
            command("--no-prompt", "deploy", "-n", "retrain/local")
            worker = [PREFECT, "worker", "start", "--pool", "local", "--name", "here"]
            started.append(subprocess.Popen(worker, cwd=ROOT, env=env, stdout=log, stderr=log))
            yield client
    finally:
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                # Prefect's worker, told to end while it takes note of a run's end, has been seen to wait for ever.
                process.kill()
                process.wait(30)
        log.close()


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").is_success
    except httpx.TransportError:
        return False


def until(holds: Any, what: str, timeout_s: float = 120) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what}: nothing within {timeout_s:g} s"
        time.sleep(0.5)
    return found


@pytest.fixture
def form(prefect: httpx.Client) -> Iterator[Page]:
    """The page behind the deployment's Run button."""
    deployment = prefect.get("/deployments/name/retrain/local").raise_for_status().json()["id"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        site = str(prefect.base_url).removesuffix("/").removesuffix("/api")
        page.goto(f"{site}/deployments/deployment/{deployment}/run")
        page.get_by_text("Mazes per step").wait_for(timeout=60_000)
        yield page
        browser.close()


def runs(prefect: httpx.Client) -> list[dict[str, Any]]:
    return prefect.post("/flow_runs/filter", json={"flows": {"name": {"any_": ["retrain"]}}}).raise_for_status().json()


def test_the_knobs_come_first_in_order_and_the_platform_is_one_box_below(form: Page) -> None:
    text = form.inner_text("body")
    places = [text.index(f"\n{title}\n") for title in [*TITLES, "platform"]]
    assert places == sorted(places)
    assert len(Knobs.model_fields) == len(TITLES) <= 12
    assert form.locator("input[type=number]").count() == 8
    for hidden in ("jobs_address", "max_num_seqs", "engine_kwargs"):
        assert hidden not in text


def test_a_bad_value_is_refused_with_the_reason_and_starts_nothing(form: Page, prefect: httpx.Client) -> None:
    before = len(runs(prefect))
    form.locator("input[type=number]").first.fill("-1")
    form.get_by_role("button", name="Submit").click()
    form.get_by_text("'knobs.max_steps'. Failure reason: -1 is less than the minimum of 1").first.wait_for()
    assert len(runs(prefect)) == before


def test_knobs_that_do_not_go_together_end_the_run_before_any_stage_with_the_reason(
    form: Page, prefect: httpx.Client
) -> None:
    before = {run["id"] for run in runs(prefect)}
    form.locator("input[type=number]").nth(5).fill("5")
    form.get_by_role("button", name="Submit").click()

    def ended() -> dict[str, Any] | None:
        return next((run for run in runs(prefect) if run["id"] not in before and run["state_type"] == "FAILED"), None)

    run = until(ended, "the refusal")
    assert "no step up to 16 has both an evaluation (every 5) and an export (every 4)" in run["state"]["message"]
    asked = {"flow_runs": {"id": {"any_": [run["id"]]}}}
    assert prefect.post("/task_runs/filter", json=asked).raise_for_status().json() == []


def test_four_steps_are_started_from_the_page_alone(form: Page, prefect: httpx.Client) -> None:
    before = {run["id"] for run in runs(prefect)}
    form.locator("input[type=number]").first.fill("4")
    form.get_by_role("button", name="Submit").click()

    def begun() -> dict[str, Any] | None:
        return next((run for run in runs(prefect) if run["id"] not in before and run["run_count"]), None)

    run = until(begun, "a worker begins the run")
    assert run["parameters"]["knobs"]["max_steps"] == 4
    assert run["parameters"]["platform"]["train"]["engine"]["max_num_seqs"] == 64
    until(lambda: next(r for r in runs(prefect) if r["id"] == run["id"])["name"].startswith("local-"), "its own name")
