"""The gate: paired counts, exact test, and the decision table."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from rl.maze.score import CannotCompare, EvalReport, Outcome
from tasks.release.gate import compare, judge
from tasks.release.settings import GateSettings
from tasks.release.statistics import wilson_interval
from tests.unit.samples import OTHER_RULES, RULES, by_other_rules


def report(solved: str, model_id: str = "m") -> EvalReport:
    """One letter a maze: ``x`` is solved."""
    outcomes = tuple(
        Outcome(seed=seed, solved=letter == "x", actions="S", unparsable_replies=0)
        for seed, letter in enumerate(solved)
    )
    return EvalReport(step=1, rules=RULES, model_id=model_id, outcomes=outcomes)


def test_mazes_are_paired_one_by_one() -> None:
    found = compare(report("xxx..x"), report("x..xx."))
    assert (found.wins, found.losses, found.both, found.neither, found.margin) == (3, 2, 1, 0, 1)


def test_the_exact_test_is_twice_the_binomial_tail() -> None:
    found = compare(report("x" * 9 + "." + "x" * 5), report("." * 9 + "x" + "x" * 5))
    assert found.p_value == pytest.approx(2 * binom.cdf(1, 10, 0.5))
    assert compare(report("x."), report("x.")).p_value == 1.0


@pytest.mark.parametrize("rule", sorted(OTHER_RULES))
def test_evaluations_by_other_rules_are_not_compared_whichever_rule_it_is(rule: str) -> None:
    candidate, base = report("xxx", "candidate"), by_other_rules(report("...", "base"), rule)
    with pytest.raises(
        CannotCompare, match=rf"candidate at step 1 and base at step 1 .*: {rule}.* was .* Evaluate both"
    ):
        compare(candidate, base)
    with pytest.raises(CannotCompare, match=rule):
        judge(GateSettings(), candidate, base, None)
    with pytest.raises(CannotCompare, match=rule):
        judge(GateSettings(), candidate, report("...", "base"), by_other_rules(report("x..", "champion"), rule))


def test_all_that_differs_is_named_at_once() -> None:
    other = by_other_rules(by_other_rules(report("x"), "max_turns"), "parsing")
    with pytest.raises(
        CannotCompare,
        match="max_turns was 15 for the one and 10 for the other; parsing was tolerant for the one and strict",
    ):
        compare(report("x"), other)


def test_there_is_another_value_for_each_rule() -> None:
    assert OTHER_RULES.keys() == type(RULES).model_fields.keys()


def test_the_wilson_interval_of_62_of_64_stays_below_one() -> None:
    low, high = wilson_interval(62, 64)
    assert (round(low, 3), round(high, 3)) == (0.893, 0.991)


BASE = "x" * 10 + "." * 20


@pytest.mark.parametrize(
    ("candidate", "champion", "decision", "reason"),
    [
        ("x" * 20 + "." * 10, None, "promote", "no champion to beat"),
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
