"""Promote, keep or reject: a paired comparison on the same mazes. Pure.

Every maze is played by both models, so what counts is the mazes that one solves and the other does not. Their split
is tested exactly, and solve rates carry score intervals (statistics.py).
"""

from __future__ import annotations

from rl.maze.score import EvalReport, require_same_rules
from tasks.records import Comparison, Decision, Verdict
from tasks.release.settings import GateSettings
from tasks.release.statistics import mcnemar_p_value, wilson_interval


def compare(candidate: EvalReport, reference: EvalReport) -> Comparison:
    """Pair two reports by maze; raises CannotCompare when they were played by different rules."""
    require_same_rules((candidate, reference))
    pairs = [(a.solved, b.solved) for a, b in zip(candidate.outcomes, reference.outcomes, strict=True)]
    wins, losses = pairs.count((True, False)), pairs.count((False, True))
    return Comparison(
        reference=reference.model_id,
        wins=wins,
        losses=losses,
        both=pairs.count((True, True)),
        neither=pairs.count((False, False)),
        p_value=mcnemar_p_value(wins, losses),
    )


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
        return "promote", f"{figures}; there was no champion to beat"
    figures = f"{champion.wins} mazes won and {champion.losses} lost against the champion {champion.reference}"
    if champion.margin < settings.min_margin_over_champion:
        return "keep", f"{figures}; at least {settings.min_margin_over_champion} more won than lost was wanted"
    return "promote", figures
