"""Runs beside each other, from what a real MLflow (in SQLite) holds of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from pydantic import ValidationError
from scipy.stats import binomtest

from rl.maze.score import CannotCompare, EvalReport
from tasks.clients.mlflow_evidence import EVALUATION_MAZES, JUDGE_MAZES, EvidenceOfRuns, RunEvidence
from tasks.clients.mlflow_history import PastRun
from tasks.errors import UnknownRun
from tasks.evidence.compare import RunComparison, compare_and_show, compare_runs
from tasks.evidence.compare_pages import as_markdown
from tasks.evidence.compare_tables import cost_row, knobs_that_differ, on_common_mazes, paired_row, tables_of
from tasks.evidence.settings import CompareSettings
from tasks.settings import TrackingSettings
from tests.recording import recording
from tests.unit.evidence.made_runs import MadeRuns
from tests.unit.samples import OTHER_RULES, by_other_rules, report

pytestmark = pytest.mark.slow_s(40)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeRuns:
    runs = MadeRuns(tmp_path_factory.mktemp("made"))
    runs.add("steady", 0.97, {"learning_rate": 0.001, "train.grpo.learning_rate": 0.001, "usd_per_h": 0})
    runs.add("hasty", 0.85, {"learning_rate": 0.01, "train.grpo.learning_rate": 0.01, "usd_per_h": 0})
    runs.add("steady-again", 0.97, {"learning_rate": 0.001, "train.grpo.learning_rate": 0.001}, judge="steady")
    assert not runs.warned
    return runs


def settings(made: MadeRuns, folder: Path, *names: str) -> CompareSettings:
    tracking = TrackingSettings(tracking_uri=made.uri, experiment="e", outbox_dir="", logs_dir="")
    return CompareSettings(runs=list(names), tracking=tracking, comparisons_dir=str(folder))


@pytest.fixture(scope="module")
def found(made: MadeRuns, tmp_path_factory: pytest.TempPathFactory) -> RunComparison:
    return compare_runs(settings(made, tmp_path_factory.mktemp("compared"), "steady", "hasty", "steady-again"))


def evidence(made: MadeRuns, *names: str) -> list[RunEvidence]:
    return EvidenceOfRuns(made.uri, "e").named(names)


def solved(report: EvalReport) -> dict[int, bool]:
    return {outcome.seed: outcome.solved for outcome in report.outcomes}


def test_knobs_that_differ_stand_there_once_by_their_bare_name(found: RunComparison) -> None:
    knobs = found.tables.knobs
    assert list(knobs.columns) == ["steady", "hasty", "steady-again"]
    assert list(knobs.loc["learning_rate"]) == ["0.001", "0.01", "0.001"]
    assert "train.grpo.learning_rate" not in knobs.index
    assert not [name for name in knobs.index if "max_steps" in name or name == "run_name"]


def test_a_path_whose_bare_name_says_something_else_keeps_its_own_row() -> None:
    params = ({"seed": "1", "train.grpo.seed": "1", "model.seed": "3"}, {"seed": "2", "train.grpo.seed": "2"})
    runs = [RunEvidence(past(name, known)) for name, known in zip("ab", params, strict=True)]
    assert knobs_that_differ(runs).to_dict("index") == {
        "seed": {"a": "1", "b": "2"},
        "model.seed": {"a": "3", "b": ""},
    }


def past(name: str, params: Mapping[str, str] | None = None, **changes: Any) -> PastRun:
    known: dict[str, Any] = {"state": "FINISHED", "started_ms": 0, "ended_ms": 7_200_000, "metrics": {}, "decision": ""}
    return PastRun(name, params=dict(params or {}), **{**known, **changes})


def test_results_have_wilson_intervals_and_what_the_gate_decided(made: MadeRuns, found: RunComparison) -> None:
    for one in evidence(made, "steady", "hasty"):
        row, report = found.tables.results.loc[one.run.name], one.report
        assert row["best_solved"] == report["best"]["solved"]
        interval = binomtest(report["best"]["solved"], 64).proportion_ci(0.95, method="wilson")
        assert (row["best_rate_low"], row["best_rate_high"]) == pytest.approx((interval.low, interval.high))
        judge = one.evaluations[JUDGE_MAZES]
        assert (row["judge_candidate_solved"], row["judge_candidate_mazes"]) == (judge.num_solved, 96)
        assert (row["decision"], row["reason"]) == (report["gate"]["decision"], report["gate"]["reason"])
        assert one.run.decision == row["decision"]


def test_runs_are_paired_maze_by_maze_and_the_test_is_exact(made: MadeRuns, found: RunComparison) -> None:
    steady, hasty, _ = evidence(made, "steady", "hasty", "steady-again")
    rows = found.tables.paired
    assert len(rows) == 6
    row = rows[(rows.mazes == EVALUATION_MAZES) & (rows.run == "hasty") & (rows.against == "steady")].iloc[0]
    one, other = (solved(run.evaluations[EVALUATION_MAZES]) for run in (hasty, steady))
    won, lost = (sum(a[seed] and not b[seed] for seed in a) for a, b in ((one, other), (other, one)))
    assert (row["won"], row["lost"], row["in_common"], row["said"]) == (won, lost, 64, "")
    assert lost > won
    assert row["p_value"] == pytest.approx(binomtest(won, won + lost).pvalue)
    assert row["difference"] == pytest.approx((won - lost) / 64, abs=1e-4)
    assert row["low"] < row["difference"] < row["high"]


def test_judge_sets_of_two_names_have_no_maze_in_common_and_it_is_said(found: RunComparison) -> None:
    rows = found.tables.paired[found.tables.paired.mazes == JUDGE_MAZES].set_index(["run", "against"])
    assert rows.loc[("hasty", "steady"), "said"] == (
        "not compared: they have no maze in common; each run draws a judge set of its own"
    )
    assert pd.isna(rows.loc[("hasty", "steady"), "p_value"])
    assert rows.loc[("steady-again", "steady"), "in_common"] == 96


@pytest.mark.parametrize("rule", [rule for rule in OTHER_RULES if rule != "eval_set_sha256"])
def test_mazes_played_by_other_rules_are_not_compared_and_the_rule_is_named(rule: str) -> None:
    one, other = (RunEvidence(past(name), evaluations={EVALUATION_MAZES: found}) for name, found in
                  (("a", report(4, 30)), ("b", by_other_rules(report(4, 40), rule))))  # fmt: skip
    row = paired_row(EVALUATION_MAZES, one, other)
    assert row["p_value"] is None
    assert row["said"].startswith("not compared: ")
    assert rule.split("_sha")[0] in row["said"]


def test_sets_that_overlap_are_paired_on_what_they_share_and_other_conditions_are_named() -> None:
    whole = report(4, 30)
    some = whole.model_copy(update={"outcomes": whole.outcomes[:40][::-1]})
    one, other = on_common_mazes(some, by_other_rules(whole, "eval_set_sha256"))
    assert [a.seed for a in one.outcomes] == [b.seed for b in other.outcomes]
    assert one.num_mazes == 40
    row = paired_row(
        EVALUATION_MAZES,
        RunEvidence(past("a"), evaluations={EVALUATION_MAZES: whole}),
        RunEvidence(past("b"), evaluations={EVALUATION_MAZES: some}),
    )
    assert (row["in_common"], row["won"], row["lost"]) == (40, 0, 0)
    assert row["said"] == "40 of 64 and 40 mazes are common to both"
    with pytest.raises(CannotCompare, match="no maze in common"):
        on_common_mazes(some, whole.model_copy(update={"outcomes": whole.outcomes[40:]}))


def test_a_run_that_came_to_no_result_is_shown_with_what_there_is() -> None:
    broken = RunEvidence(past("broken", state="FAILED", ended_ms=None))
    tables = tables_of([broken, RunEvidence(past("other"))])
    assert tables.results.loc["broken", "state"] == "failed"
    assert tables.paired["said"].unique().tolist() == [
        "not compared: MLflow has no such evaluation of broken and other"
    ]
    text = as_markdown(tables)
    assert "## Settings that differ\n\nThey are the same." in text
    assert "nan" not in text.lower()


def test_cost_adds_up_all_attempts_and_dollars_only_where_machines_have_a_price() -> None:
    run = past("a", metrics={"cost/training_hours": 1.0, "cost/gpu_hours": 6.0})
    priced = RunEvidence(run, {"stage/whole_run_s": {1: 1800.0, 2: 3600.0}, "cost/usd": {1: 18.0, 2: 36.5}})
    assert cost_row(priced) == {"wall_hours": 1.5, "training_hours": 1.0, "gpu_hours": 6.0, "usd": 54.5}
    assert cost_row(RunEvidence(past("b"))) == {
        "wall_hours": 2.0, "training_hours": None, "gpu_hours": None, "usd": None
    }  # fmt: skip


def test_it_is_written_as_markdown_html_csv_and_one_picture(found: RunComparison) -> None:
    assert set(found.files) == {"curves", "markdown", "html", "knobs", "results", "paired", "cost"}
    for name, table in found.tables.by_name.items():
        again = pd.read_csv(found.files[name], dtype=str, keep_default_na=False)
        assert len(again) == len(table)
    page = found.files["html"].read_text()
    assert page.count("<table") == 4
    assert not re.search(r"""(src|href)=["'](?!data:)""", page), "the page needs nothing from the net"
    pixels = np.asarray(Image.open(found.files["curves"]).convert("RGB")).reshape(-1, 3)
    assert len(np.unique(pixels, axis=0)) > 50
    text = found.files["markdown"].read_text()
    assert text.startswith("# steady against hasty against steady-again")
    assert "| learning_rate | 0.001 | 0.01 | 0.001 |" in text


def test_what_a_run_s_settings_say_is_text_on_the_page(made: MadeRuns, tmp_path: Path) -> None:
    made.client.log_param(evidence(made, "hasty")[0].run.run_id, "note", "<img src=x> | a")
    files = compare_runs(settings(made, tmp_path, "steady", "hasty")).files
    assert "<img src=x>" not in files["html"].read_text()
    assert "| &lt;img src=x> \\| a |" in files["markdown"].read_text()


def test_the_flow_s_stage_keeps_it_in_mlflow_and_on_the_page_under_keys_that_stay(
    made: MadeRuns, tmp_path: Path
) -> None:
    context, events = recording()
    compare_and_show.fn(context, settings(made, tmp_path, "steady", "hasty"))
    assert [event.split(" http")[0] for event in events] == [
        *(f"log comparison/{name}" for name in ("curves.png", "comparison.md", "comparison.html")),
        *(f"log comparison/{name}.csv" for name in ("knobs", "results", "paired", "cost")),
        "markdown comparison",
        "picture curves",
    ]


def test_a_name_that_mlflow_does_not_know_is_named_and_one_run_is_no_comparison(made: MadeRuns, tmp_path: Path) -> None:
    with pytest.raises(UnknownRun, match="MLflow knows no run nobody, nothing; `maze-retrain runs` lists them"):
        compare_runs(settings(made, tmp_path, "nobody", "steady", "nothing"))
    for names in (["steady"], ["steady", "steady"], ["Steady", "hasty"]):
        with pytest.raises(ValidationError):
            settings(made, tmp_path, *names)
