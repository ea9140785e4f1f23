"""Runs beside each other, as tables: what was set, what came of it, who is better maze by maze, what it took. Pure.

A row of ``results``, ``cost`` and ``paired`` has numbers as they are; compare_pages.py puts them into words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from rl.maze.score import CannotCompare, EvalReport
from tasks.clients.mlflow_evidence import EVALUATION_MAZES, JUDGE_MAZES, USD, WHOLE_RUN_S, RunEvidence
from tasks.evidence.comparison import difference_part
from tasks.release.gate import compare
from tasks.release.statistics import wilson_interval
from tasks.training.curves import GPU_HOURS, TRAINING_HOURS

ANY_SET = "mazes that both played"
"""In place of a set's digest where only the mazes in common are paired."""


@dataclass(frozen=True)
class RunTables:
    """What a comparison of runs says."""

    knobs: pd.DataFrame
    """A row for each setting that is not alike in all, a column a run."""
    results: pd.DataFrame
    """A row a run."""
    paired: pd.DataFrame
    """A row for each two runs and each set of mazes."""
    cost: pd.DataFrame
    """A row a run."""

    @property
    def by_name(self) -> Mapping[str, pd.DataFrame]:
        return {"knobs": self.knobs, "results": self.results, "paired": self.paired, "cost": self.cost}


def tables_of(runs: Sequence[RunEvidence]) -> RunTables:
    """All of them."""
    names = pd.Index([one.run.name for one in runs], name="run")
    return RunTables(
        knobs=knobs_that_differ(runs),
        results=pd.DataFrame([result_row(one) for one in runs], index=names),
        paired=pd.DataFrame(paired_rows(runs)),
        cost=pd.DataFrame([cost_row(one) for one in runs], index=names),
    )


def knobs_that_differ(runs: Sequence[RunEvidence]) -> pd.DataFrame:
    """Parameters that are not alike; one that has a bare name of its own stands there once, by that."""
    params = {one.run.name: one.run.params for one in runs}
    names = sorted({name for known in params.values() for name in known} - {"run_name"})
    rows = {name: {run: known.get(name, "") for run, known in params.items()} for name in names}
    differ = {name: row for name, row in rows.items() if len(set(row.values())) > 1}
    kept = [name for name in differ if "." not in name or differ.get(name.rpartition(".")[2]) != differ[name]]
    kept.sort(key=lambda name: ("." in name, name))
    table = pd.DataFrame([differ[name] for name in kept], index=pd.Index(kept, name="setting"), columns=list(params))
    return table.astype(str)


def result_row(one: RunEvidence) -> dict[str, Any]:
    """One run's state, evaluations and verdict; what it did not come to is empty."""
    report, run = one.report, one.run
    judge, gate = report.get("judge", {}), report.get("gate", {})
    solved, num_mazes, difference = judge.get("solved", {}), judge.get("num_mazes"), gate.get("difference", {})
    eval_set = report.get("eval_set", {})
    return {
        "state": run.state.lower(),
        "steps": run.step,
        **_share("base", report.get("base", {}).get("solved"), eval_set.get("num_mazes")),
        "best_step": report.get("best", {}).get("step"),
        **_share("best", report.get("best", {}).get("solved"), eval_set.get("num_mazes")),
        "ceiling": eval_set.get("ceiling"),
        **_share("judge_base", solved.get("base"), num_mazes),
        **_share("judge_champion", solved.get("champion"), num_mazes),
        **_share("judge_candidate", solved.get("candidate"), num_mazes),
        **{f"gain_{bound}": difference.get(bound) for bound in ("value", "low", "high")},
        "gain_p_value": gate.get("p_value"),
        "decision": gate.get("decision") or run.decision,
        "reason": gate.get("reason", ""),
    }


def _share(name: str, num_solved: int | None, num_mazes: int | None) -> dict[str, float | None]:
    """So many of so many, with the rate's 95% Wilson interval."""
    if num_solved is None or not num_mazes:
        keys = ("solved", "mazes", "rate", "rate_low", "rate_high")
        return {f"{name}_{key}": None for key in keys}
    low, high = wilson_interval(num_solved, num_mazes)
    found = {"solved": num_solved, "mazes": num_mazes, "rate": num_solved / num_mazes, "rate_low": low}
    return {f"{name}_{key}": value for key, value in {**found, "rate_high": high}.items()}


def paired_rows(runs: Sequence[RunEvidence]) -> list[dict[str, Any]]:
    """Each two runs on the mazes that both played, or why they are not compared."""
    pairs = combinations(runs, 2)
    return [paired_row(name, one, other) for one, other in pairs for name in (EVALUATION_MAZES, JUDGE_MAZES)]


def paired_row(mazes: str, one: RunEvidence, other: RunEvidence) -> dict[str, Any]:
    """``other`` against ``one``: mazes that only one of them solved, the exact test, the difference."""
    row: dict[str, Any] = {"mazes": mazes, "run": other.run.name, "against": one.run.name}
    numbers = ("in_common", "won", "lost", "both", "neither", "difference", "low", "high", "p_value")
    empty: dict[str, Any] = dict.fromkeys(numbers)
    lacking = [evidence.run.name for evidence in (one, other) if mazes not in evidence.evaluations]
    if lacking:
        return {**row, **empty, "said": f"not compared: MLflow has no such evaluation of {' and '.join(lacking)}"}
    before, after = one.evaluations[mazes], other.evaluations[mazes]
    try:
        found = compare(*on_common_mazes(after, before))
    except CannotCompare as error:
        return {**row, **empty, "said": f"not compared: {error}"}
    num_common, difference = found.wins + found.losses + found.both + found.neither, difference_part(found)
    said = [f"{num_common} of {before.num_mazes} and {after.num_mazes} mazes are common to both"]
    said = said if num_common < max(before.num_mazes, after.num_mazes) else []
    said += [f"played under other conditions: {found.other_conditions}"] if found.other_conditions else []
    counts = {"won": found.wins, "lost": found.losses, "both": found.both, "neither": found.neither}
    test = {"difference": difference["value"], "low": difference["low"], "high": difference["high"]}
    return {**row, "in_common": num_common, **counts, **test, "p_value": found.p_value, "said": "; ".join(said)}


def on_common_mazes(one: EvalReport, other: EvalReport) -> tuple[EvalReport, EvalReport]:
    """Both, with the mazes alone that both played; raises CannotCompare where there is none.

    Which set a maze is of does not matter here: a seed is the same maze under rules that are otherwise the same.
    """
    seeds = [{outcome.seed for outcome in report.outcomes} for report in (one, other)]
    if not (common := seeds[0] & seeds[1]):
        raise CannotCompare("they have no maze in common; each run draws a judge set of its own")
    return _only(one, common), _only(other, common)


def _only(report: EvalReport, seeds: set[int]) -> EvalReport:
    outcomes = sorted((outcome for outcome in report.outcomes if outcome.seed in seeds), key=lambda one: one.seed)
    rules = report.rules.model_copy(update={"eval_set_sha256": ANY_SET})
    return report.model_copy(update={"outcomes": tuple(outcomes), "rules": rules})


def cost_row(one: RunEvidence) -> dict[str, Any]:
    """Hours of all attempts of the run, of training, of GPUs; dollars where machines have a price."""
    run, spent_s = one.run, sum(one.curves.get(WHOLE_RUN_S, {}).values())
    if not spent_s and run.ended_ms:
        spent_s = (run.ended_ms - run.started_ms) / 1000
    dollars = one.curves.get(USD)
    return {
        "wall_hours": spent_s / 3600 if spent_s else None,
        "training_hours": run.metrics.get(TRAINING_HOURS),
        "gpu_hours": run.metrics.get(GPU_HOURS),
        "usd": sum(dollars.values()) if dollars else None,
    }
