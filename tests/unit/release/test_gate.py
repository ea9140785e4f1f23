"""The gate: paired counts, exact test, and the decision table."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from rl.maze.score import EvalReport, Outcome
from tasks.release.gate import CannotCompare, compare, judge
from tasks.release.settings import GateSettings
from tasks.release.statistics import wilson_interval


def report(solved: str, model_id: str = "m", eval_set: str = "a" * 64) -> EvalReport:
    """One letter a maze: ``x`` is solved."""
    outcomes = tuple(
        Outcome(seed=seed, solved=letter == "x", actions="S", unparsable_replies=0)
        for seed, letter in enumerate(solved)
    )
    return EvalReport(step=1, eval_set_sha256=eval_set, model_id=model_id, outcomes=outcomes)


def test_mazes_are_paired_one_by_one() -> None:
    found = compare(report("xxx..x"), report("x..xx."))
    assert (found.wins, found.losses, found.both, found.neither, found.margin) == (3, 2, 1, 0, 1)


def test_the_exact_test_is_twice_the_binomial_tail() -> None:
    found = compare(report("x" * 9 + "." + "x" * 5), report("." * 9 + "x" + "x" * 5))
    assert found.p_value == pytest.approx(2 * binom.cdf(1, 10, 0.5))
    assert compare(report("x."), report("x.")).p_value == 1.0


def test_other_mazes_are_not_compared() -> None:
    with pytest.raises(CannotCompare, match="play both on the same set"):
        compare(report("x"), report("x", eval_set="b" * 64))


def test_the_wilson_interval_of_62_of_64_stays_below_one() -> None:
    low, high = wilson_interval(62, 64)
    assert (round(low, 3), round(high, 3)) == (0.893, 0.991)


BASE = "x" * 10 + "." * 20


@pytest.mark.parametrize(
    ("candidate", "champion", "decision", "reason"),
    [
        ("x" * 20 + "." * 10, None, "promote", "no champion yet"),
        ("x" * 20 + "." * 10, "x" * 18 + "." * 12, "promote", "2 mazes won and 0 lost against the champion"),
        ("x" * 20 + "." * 10, "x" * 20 + "." * 10, "keep", "0 mazes won and 0 lost against the champion"),
        ("x" * 20 + "." * 10, "x" * 22 + "." * 8, "keep", "0 mazes won and 2 lost"),
        ("x" * 14 + "." * 16, None, "reject", "4 mazes won and 0 lost against the base"),
        ("." * 3 + "x" * 16 + "." * 11, None, "reject", "9 mazes won and 3 lost against the base, p=0.146"),
        (BASE, "x" * 30, "reject", "0 mazes won and 0 lost against the base"),
    ],
)
def test_the_decision_table(candidate: str, champion: str | None, decision: str, reason: str) -> None:
    verdict = judge(
        GateSettings(), report(candidate), report(BASE, "base"), report(champion, "champion") if champion else None
    )
    assert verdict.decision == decision
    assert reason in verdict.reason


def test_wilson_intervals_agree_with_published_values() -> None:
    # 28 of 64 and 62 of 64, to a tenth of a point (Wilson 1927, without continuity correction).
    assert wilson_interval(28, 64) == pytest.approx((0.323, 0.559), abs=1e-3)
    assert wilson_interval(62, 64) == pytest.approx((0.893, 0.991), abs=1e-3)
