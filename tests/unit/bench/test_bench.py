"""The bench's arithmetic; what it measures is measured by running it."""

from __future__ import annotations

import pytest

from bench.grpo import STOCK_ENGINE, flow_overhead, ratios, short_job, summary
from flows.deployments import load_settings

OURS = {
    "step_s": 40.0,
    "turns_15_s": 30.0,
    "turns_5_s": 10.0,
    "base_turns_15_s": 25.0,
    "turns_15_busy": 0.9,
    "start_s": 90.0,
}
STOCK = {**OURS, "step_s": 100.0, "turns_15_s": 120.0, "turns_5_s": 20.0, "base_turns_15_s": 60.0, "start_s": 180.0}


def test_a_ratio_below_one_says_that_ours_is_quicker() -> None:
    found = ratios([OURS, {**OURS, "step_s": 44.0}, {**OURS, "step_s": 20.0}], [STOCK])
    assert found["grpo_step_ratio"] == pytest.approx(0.4)
    assert found["rollout_ratio"] == pytest.approx(0.25)
    assert found["growth_15_over_5_turns"] == pytest.approx(3.0)
    assert found["lora_over_base"] == pytest.approx(1.2)
    assert found["start_ratio"] == pytest.approx(0.5)
    assert found["stock_growth_15_over_5_turns"] == pytest.approx(6.0)


def test_flow_overhead_is_the_wall_time_that_no_stage_accounts_for() -> None:
    assert flow_overhead({"timings_s": {"train": 90.0, "report": 7.0}, "wall_s": 100.0}) == pytest.approx(0.03)
    assert flow_overhead({"timings_s": {"train": 90.0}}) is None


def test_what_was_not_measured_is_null_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = local_settings(monkeypatch)
    found = summary({"ours": [OURS], "stock": [STOCK]}, {"ours": [1000.0], "visgym": []}, settings)
    assert found["env_ratio"] is None
    assert "VisGym" in found["not_measured"]["env_ratio"]
    assert found["flow_overhead"] is None
    assert "flow_overhead" in found["not_measured"]


def test_the_sides_differ_in_the_engine_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = local_settings(monkeypatch)
    ours, stock = (short_job(settings, side, "bench").train for side in ("ours", "stock"))
    assert stock.engine.init_kwargs == STOCK_ENGINE
    engine = ours.engine.model_copy(update={"init_kwargs": STOCK_ENGINE})
    assert stock == ours.model_copy(update={"engine": engine})


def local_settings(monkeypatch: pytest.MonkeyPatch):  # noqa: ANN201 - RetrainSettings
    for name in ("MLFLOW_TRACKING_URI", "RAY_JOBS_ADDRESS", "SERVE_DASHBOARD", "SERVE_URL"):
        monkeypatch.setenv(name, "http://nowhere")
    monkeypatch.setenv("SERVE_LISTEN", "127.0.0.1:1")
    monkeypatch.setenv("PROJECT_DIR", "/nowhere")
    return load_settings("retrain/local", {})
