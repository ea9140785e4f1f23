"""The gate: paired counts, exact test, and the decision table."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from rl.maze.score import CannotCompare, Conditions, EvalReport, Outcome
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
        ("x" * 20 + "." * 10, "x" * 14 + "." * 16, "promote", "6 judge mazes won and 0 lost against the champion"),
        ("x" * 20 + "." * 10, "x" * 15 + "." * 15, "keep", "5 judge mazes won and 0 lost against the champion"),
        ("x" * 20 + "." * 10, "x" * 20 + "." * 10, "keep", "0 judge mazes won and 0 lost against the champion"),
        ("x" * 20 + "." * 10, "x" * 28 + "." * 2, "keep", "0 judge mazes won and 8 lost"),
        ("x" * 15 + "." * 15, None, "reject", "5 judge mazes won and 0 lost against the base, p=0.062"),
        ("." * 3 + "x" * 16 + "." * 11, None, "reject", "9 judge mazes won and 3 lost against the base, p=0.15"),
        (BASE, "x" * 30, "reject", "0 judge mazes won and 0 lost against the base"),
        ("." * 30, None, "reject", "0 judge mazes won and 10 lost against the base, p=0.002"),
    ],
)
def test_the_decision_table(candidate: str, champion: str | None, decision: str, reason: str) -> None:
    verdict = judge(
        GateSettings(), report(candidate), report(BASE, "base"), report(champion, "champion") if champion else None
    )
    assert verdict.decision == decision
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("champion", "decision"),
    [
        # One maze more of 200, none lost: the interval reaches 2 points below the champion.
        ("x" * 149 + "." * 51, "promote"),
        ("x" * 150 + "." * 50, "keep"),
        # 31 won and 30 lost: it reaches 7 points below.
        ("." * 31 + "x" * 149 + "." * 20, "keep"),
    ],
)
def test_not_inferior_wants_a_better_estimate_and_an_interval_above_the_margin(champion: str, decision: str) -> None:
    settings = GateSettings(over_champion="not_inferior", max_inferiority=0.05)
    candidate, base = report("x" * 150 + "." * 50), report("." * 200, "base")
    assert judge(settings, candidate, base, report(champion, "champion")).decision == decision
    assert judge(GateSettings(), candidate, base, report(champion, "champion")).decision == "keep"


def test_a_verdict_is_one_sentence_with_all_its_figures() -> None:
    verdict = judge(GateSettings(), report("x" * 182 + "." * 74), report("." * 67 + "x" * 121 + "." * 68), None)
    assert verdict.reason == (
        "67 judge mazes won and 6 lost against the base, p=3.9e-14, +23.8 points (95% interval +17.8 to +29.5); "
        "there was no champion to beat; 256 mazes show a gain of 7 points over the base 9 times in 10"
    )
    assert verdict.visible_gain == pytest.approx(0.071, abs=2e-3)
    few = judge(GateSettings(), report("x" * 3), report("..."), None)
    assert few.visible_gain is None
    assert few.reason.endswith("3 mazes are too few to show any gain over the base 9 times in 10")


def test_a_comparison_says_what_was_not_alike_when_both_were_played() -> None:
    then = Conditions(num_concurrent=32, engine={"dtype": "float32", "max_num_seqs": 64}, software="vllm 0.30.0")
    now = then.model_copy(update={"num_concurrent": 16, "engine": {"dtype": "float32", "max_num_seqs": 8}})
    one, other = (report("x" * 10).model_copy(update={"conditions": conditions}) for conditions in (now, then))
    said = "engine.max_num_seqs was 8 for the one and 64 for the other; num_concurrent was 16 for the one and 32"
    assert compare(one, other).other_conditions.startswith(said)
    assert f"the base, played under other conditions ({said}" in judge(GateSettings(), one, other, None).reason
    assert compare(one, one).other_conditions == compare(one, report("x" * 10)).other_conditions == ""


def test_wilson_intervals_agree_with_published_values() -> None:
    # 28 of 64 and 62 of 64, to a tenth of a point (Wilson 1927, without continuity correction).
    assert wilson_interval(28, 64) == pytest.approx((0.323, 0.559), abs=1e-3)
    assert wilson_interval(62, 64) == pytest.approx((0.893, 0.991), abs=1e-3)
