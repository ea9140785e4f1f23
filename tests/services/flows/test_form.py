"""What somebody meets who knows only Prefect's pages: the real deployment's form, in a real browser.

Prefect's server and a worker run here; the run's own services do not, so a run ends soon after it began.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from flows.knobs import Knobs
from tests.services.flows.prefect_site import Prefect, until

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


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": 1400, "height": 1000})
        browser.close()


@pytest.fixture
def form(page: Page, prefect: Prefect) -> Page:
    """The page behind the deployment's Run button."""
    deployment = prefect.get("/deployments/name/retrain/local")["id"]
    page.goto(f"{prefect.site}/deployments/deployment/{deployment}/run")
    page.get_by_text("Mazes per step").wait_for(timeout=60_000)
    return page


def test_the_knobs_come_first_in_order_and_the_platform_is_one_box_below(form: Page) -> None:
    text = form.inner_text("body")
    places = [text.index(f"\n{title}\n") for title in [*TITLES, "platform"]]
    assert places == sorted(places)
    assert len(Knobs.model_fields) == len(TITLES) <= 12
    assert form.locator("input[type=number]").count() == 8
    for hidden in ("jobs_address", "max_num_seqs", "engine_kwargs"):
        assert hidden not in text


def test_a_bad_value_is_refused_with_the_reason_and_starts_nothing(form: Page, prefect: Prefect) -> None:
    before = len(prefect.runs())
    form.locator("input[type=number]").first.fill("-1")
    form.get_by_role("button", name="Submit").click()
    form.get_by_text("'knobs.max_steps'. Failure reason: -1 is less than the minimum of 1").first.wait_for()
    assert len(prefect.runs()) == before


def test_knobs_that_do_not_go_together_end_the_run_before_any_stage_with_the_reason(
    form: Page, prefect: Prefect
) -> None:
    before = {run["id"] for run in prefect.runs()}
    form.locator("input[type=number]").nth(5).fill("5")
    form.get_by_role("button", name="Submit").click()

    def ended() -> dict[str, Any] | None:
        return next((run for run in prefect.runs() if run["id"] not in before and run["state_type"] == "FAILED"), None)

    run = until(ended, "the refusal")
    assert "no step up to 16 has both an evaluation (every 5) and an export (every 4)" in run["state"]["message"]
    assert prefect.filtered("task_runs", flow_runs={"id": {"any_": [run["id"]]}}) == []


def test_four_steps_are_started_from_the_page_alone(form: Page, prefect: Prefect) -> None:
    before = {run["id"] for run in prefect.runs()}
    form.locator("input[type=number]").first.fill("4")
    form.get_by_role("button", name="Submit").click()

    def begun() -> dict[str, Any] | None:
        return next((run for run in prefect.runs() if run["id"] not in before and run["run_count"]), None)

    run = until(begun, "a worker begins the run")
    assert run["parameters"]["knobs"]["max_steps"] == 4
    assert run["parameters"]["platform"]["train"]["engine"]["max_num_seqs"] == 64
    until(lambda: next(r for r in prefect.runs() if r["id"] == run["id"])["name"].startswith("local-"), "its own name")
