"""What somebody meets who knows only Prefect's pages: the real deployment's form, in a real browser.

Prefect's server and a worker run here; the run's own services do not. Prefect has two UIs: a new browser comes to the
second one, and one click leads from each to the other.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from flows.knobs import Knobs
from tests.services.flows.prefect_site import Prefect, until

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
MOST_S = 180
"""A minute where nothing else runs; other tests may have the second core, and more."""
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
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
    pytest.mark.slow_s(200),
    pytest.mark.skipif(not CHROMIUM, reason="no browser here; apt-get install chromium runs these"),
]


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": 1400, "height": 1000})
        browser.close()


@pytest.fixture(autouse=True, scope="module")
def any_number_of_runs(prefect: Prefect) -> Iterator[None]:
    """None waits for another one, which looks for services that nobody started; all end with these tests."""
    deployment = prefect.get("/deployments/name/retrain/local")
    assert deployment["global_concurrency_limit"]["limit"] == 1
    prefect.client.patch(f"/deployments/{deployment['id']}", json={"concurrency_limit": None})
    yield
    for run in prefect.runs():
        if run["state_type"] not in ENDED:
            ask = {"type": "CANCELLING" if run["state_type"] == "RUNNING" else "CANCELLED"}
            prefect.client.post(f"/flow_runs/{run['id']}/set_state", json={"state": ask, "force": True})
    until(lambda: all(run["state_type"] in ENDED for run in prefect.runs()), "the runs' end")


@pytest.fixture(params=["", "/v2"], ids=["first-ui", "second-ui"])
def form(request: pytest.FixtureRequest, page: Page, prefect: Prefect) -> Page:
    """The page behind the deployment's Run button."""
    deployment = prefect.get("/deployments/name/retrain/local")["id"]
    page.goto(f"{prefect.site}{request.param}/deployments/deployment/{deployment}", timeout=60_000)
    return to_form(page)


def to_form(page: Page) -> Page:
    page.get_by_role("button", name="Run", exact=True).click(timeout=60_000)
    page.get_by_text("Custom run").click()
    page.get_by_text("Mazes per step").wait_for(timeout=60_000)
    return page


def submit(form: Page) -> None:
    """Starts the run. As a person would, it presses the button again when the page says "Unknown error while creating
    flow run": Prefect's server answers 503 while something else writes to its SQLite database."""
    deadline, seen = time.monotonic() + 60, list[str]()
    while time.monotonic() < deadline:
        with form.expect_response(lambda answer: answer.url.endswith("/create_flow_run"), timeout=30_000) as said:
            form.get_by_role("button", name="Submit").click()
        if said.value.ok:
            return
        seen.append(f"{said.value.status} {said.value.text()[:200]}")
        assert said.value.status == 503, seen
        time.sleep(2)
    raise AssertionError(f"no run was started: {seen}")


def begun(prefect: Prefect, before: set[str]) -> dict[str, Any] | None:
    return next((run for run in prefect.runs() if run["id"] not in before and run["run_count"]), None)


def test_the_knobs_come_first_in_order_and_the_platform_is_one_line_below(form: Page) -> None:
    text = form.inner_text("body")
    places = [text.index(f"\n{title}\n") for title in [*TITLES, "platform", "As deployed"]]
    assert places == sorted(places)
    assert len(Knobs.model_fields) == len(TITLES) <= 12
    assert form.locator("input[type=number]").count() == 8
    for hidden in ("jobs_address", "max_num_seqs", "engine_kwargs"):
        assert hidden not in text
    platform, end = (form.get_by_text(words, exact=True).first.bounding_box() for words in ("platform", "Start"))
    assert platform is not None
    assert end is not None
    assert end["y"] - platform["y"] < 300, "nobody scrolls through the platform"


def test_a_bad_value_is_refused_with_the_reason_and_starts_nothing(form: Page, prefect: Prefect) -> None:
    before = len(prefect.runs())
    form.locator("input[type=number]").nth(3).fill("0")
    form.get_by_role("button", name="Submit").click()
    form.get_by_text("0 is less than or equal to the minimum of 0").first.wait_for()
    assert len(prefect.runs()) == before


@pytest.mark.parametrize(
    ("mazes_per_step", "reason"), [(6, "6 is not a multiple of 4"), (4096, "4096 is greater than the maximum of 1024")]
)
def test_a_knob_that_does_not_fit_the_platform_is_refused_with_the_reason_and_starts_nothing(
    form: Page, prefect: Prefect, mazes_per_step: int, reason: str
) -> None:
    before = len(prefect.runs())
    form.locator("input[type=number]").nth(1).fill(str(mazes_per_step))
    form.get_by_role("button", name="Submit").click()
    form.get_by_text(reason).first.wait_for()
    assert len(prefect.runs()) == before


def test_a_run_from_the_form_has_its_knobs_and_the_deployment_s_platform(form: Page, prefect: Prefect) -> None:
    before = {run["id"] for run in prefect.runs()}
    form.locator("input[type=number]").nth(6).fill("8")
    submit(form)
    run = until(lambda: begun(prefect, before), "a worker begins the run")
    assert run["parameters"]["knobs"]["export_interval"] == 8
    deployment = prefect.get("/deployments/name/retrain/local")
    assert run["parameters"]["platform"] == deployment["parameters"]["platform"]


def test_somebody_who_knows_only_prefect_starts_four_steps_in_a_minute(page: Page, prefect: Prefect) -> None:
    before, began_s = {run["id"] for run in prefect.runs()}, time.monotonic()
    page.goto(prefect.site, timeout=60_000)
    page.get_by_role("link", name="Deployments").first.click()
    row = page.get_by_role("row").filter(has_text="retrain").filter(has_not_text="local-long")
    row.get_by_role("link", name="local").first.click(timeout=60_000)
    form = to_form(page)
    form.locator("input[type=number]").first.fill("4")
    submit(form)
    run = until(lambda: begun(prefect, before), "a worker begins the run")
    took_s = prefect.register_s + time.monotonic() - began_s
    print(f"registered in {prefect.register_s:.0f} s, a run of four steps began after {took_s:.0f} s")
    assert took_s < MOST_S
    assert run["parameters"]["knobs"]["max_steps"] == 4
    assert run["parameters"]["platform"]["train"]["engine"]["max_num_seqs"] == 64
    until(lambda: prefect.get(f"/flow_runs/{run['id']}")["name"].startswith("local-"), "its own name")
