"""Promote, keep or reject: a paired comparison on the same mazes. Pure.

Every maze is played by both models, so what counts is the mazes that one solves and the other does not. Their split
is tested exactly (McNemar 1947, as a two-sided binomial test at 1/2, which scipy computes); solve rates carry Wilson
score intervals (Wilson 1927).
"""

from __future__ import annotations

from scipy.stats import binomtest

from rl.maze.score import EvalReport
from tasks.records import Comparison, Decision, Verdict
from tasks.release.settings import GateSettings


class CannotCompare(ValueError):
    """The two reports are not about the same mazes."""


def compare(candidate: EvalReport, reference: EvalReport) -> Comparison:
    """Pair two reports by maze; raises CannotCompare when they are not about the same set."""
    if candidate.eval_set_sha256 != reference.eval_set_sha256:
        raise CannotCompare(
            f"{candidate.model_id} was played on evaluation set {candidate.eval_set_sha256[:12]}, {reference.model_id} "
            f"on {reference.eval_set_sha256[:12]}; play both on the same set"
        )
    pairs = [(a.solved, b.solved) for a, b in zip(candidate.outcomes, reference.outcomes, strict=True)]
    wins, losses = pairs.count((True, False)), pairs.count((False, True))
    return Comparison(
        reference=reference.model_id,
        wins=wins,
        losses=losses,
        both=pairs.count((True, True)),
        neither=pairs.count((False, False)),
        p_value=float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0,
    )


def wilson_interval(num_solved: int, num_mazes: int) -> tuple[float, float]:
    """95% score interval of a solve rate."""
    found = binomtest(num_solved, num_mazes).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)


def judge(settings: GateSettings, candidate: EvalReport, base: EvalReport, champion: EvalReport | None) -> Verdict:
    """Reject what is not clearly better than the base; promote what is ahead of the champion, if there is one."""
    against_base = compare(candidate, base)
    against_champion = compare(candidate, champion) if champion else None
    decision, reason = _decide(settings, against_base, against_champion)
    if decision == "promote" and not settings.promote:
        decision, reason = "keep", f"{reason}; better, but this run is not to promote (promote is off)"
    return Verdict(
        decision=decision,
        reason=reason,
        candidate_solved=candidate.num_solved,
        num_mazes=candidate.num_mazes,
        interval=wilson_interval(candidate.num_solved, candidate.num_mazes),
        against_base=against_base,
        against_champion=against_champion,
    )


def _decide(settings: GateSettings, base: Comparison, champion: Comparison | None) -> tuple[Decision, str]:
    figures = f"{base.wins} mazes won and {base.losses} lost against the base, p={base.p_value:.3g}"
    if base.margin < settings.min_margin_over_base or base.p_value > settings.max_p_value:
        wanted = f"at least {settings.min_margin_over_base} more won than lost and p<={settings.max_p_value:g}"
        return "reject", f"{figures}; {wanted} was wanted"
    if champion is None:
        return "promote", f"{figures}; there is no champion yet"
    figures = f"{champion.wins} mazes won and {champion.losses} lost against the champion {champion.reference}"
    if champion.margin < settings.min_margin_over_champion:
        return "keep", f"{figures}; at least {settings.min_margin_over_champion} more won than lost was wanted"
    return "promote", figures
