"""Promote, keep or reject: a paired comparison on the judge set. Pure.

Every maze is played by both models, so what counts is the mazes that one solves and the other does not. Their split
is tested exactly, and rates and differences carry score intervals (statistics.py).
"""

from __future__ import annotations

from rl.maze.score import EvalReport, other_conditions, require_same_rules
from tasks.records import Comparison, Decision, Verdict
from tasks.release.settings import GateSettings
from tasks.release.statistics import mcnemar_p_value, paired_difference, visible_gain, wilson_interval


def compare(candidate: EvalReport, reference: EvalReport) -> Comparison:
    """Pair two reports by maze; raises CannotCompare when they were played by different rules."""
    require_same_rules((candidate, reference))
    pairs = [(a.solved, b.solved) for a, b in zip(candidate.outcomes, reference.outcomes, strict=True)]
    wins, losses = pairs.count((True, False)), pairs.count((False, True))
    both, neither = pairs.count((True, True)), pairs.count((False, False))
    difference = paired_difference(wins, losses, both, neither)
    return Comparison(
        reference=reference.model_id,
        wins=wins,
        losses=losses,
        both=both,
        neither=neither,
        p_value=mcnemar_p_value(wins, losses),
        difference=difference.value,
        interval=(difference.low, difference.high),
        other_conditions=other_conditions(candidate, reference),
    )


def judge(settings: GateSettings, candidate: EvalReport, base: EvalReport, champion: EvalReport | None) -> Verdict:
    """Reject what is not clearly better than the base; promote what beats the champion, if there is one."""
    against_base = compare(candidate, base)
    against_champion = compare(candidate, champion) if champion else None
    # Half a maze more, so that none lost here is not taken for none ever lost.
    loss_share = (against_base.losses + 0.5) / (candidate.num_mazes + 1)
    seen = visible_gain(candidate.num_mazes, loss_share, settings.max_p_value)
    decision, reason = _decide(settings, against_base, against_champion)
    if decision == "promote" and not settings.promote:
        decision, reason = "keep", f"{reason}; better, but this run is not to promote (promote is off)"
    return Verdict(
        decision=decision,
        reason=f"{reason}; {_what_is_seen(candidate.num_mazes, seen)}",
        candidate_solved=candidate.num_solved,
        num_mazes=candidate.num_mazes,
        interval=wilson_interval(candidate.num_solved, candidate.num_mazes),
        against_base=against_base,
        against_champion=against_champion,
        visible_gain=seen,
    )


def _decide(settings: GateSettings, base: Comparison, champion: Comparison | None) -> tuple[Decision, str]:
    over_base = _figures(base, "the base")
    if not _is_superior(base, settings.max_p_value):
        return "reject", f"{over_base}; p<={settings.max_p_value:g} and more won than lost was wanted"
    if champion is None:
        return "promote", f"{over_base}; there was no champion to beat"
    over_champion, wanted = _figures(champion, f"the champion {champion.reference}"), _wanted(settings)
    if not _beats_the_champion(settings, champion):
        return "keep", f"{over_champion}; {wanted} was wanted"
    return "promote", f"{over_champion}; {over_base}"


def _is_superior(found: Comparison, max_p_value: float) -> bool:
    return found.margin > 0 and found.p_value <= max_p_value


def _beats_the_champion(settings: GateSettings, found: Comparison) -> bool:
    level = settings.max_p_value_over_champion
    if settings.over_champion == "superior":
        return _is_superior(found, level)
    return found.margin > 0 and _low(found, level) > -settings.max_inferiority


def _low(found: Comparison, level: float) -> float:
    return paired_difference(found.wins, found.losses, found.both, found.neither, 1 - level).low


def _wanted(settings: GateSettings) -> str:
    level = settings.max_p_value_over_champion
    if settings.over_champion == "superior":
        return f"p<={level:g} and more won than lost"
    return f"more won than lost, and a {1 - level:.0%} interval above {-100 * settings.max_inferiority:g} points,"


def _figures(found: Comparison, against: str) -> str:
    low, high = (100 * bound for bound in found.interval)
    unlike = f", played under other conditions ({found.other_conditions})" if found.other_conditions else ""
    return (
        f"{found.wins} judge mazes won and {found.losses} lost against {against}{unlike}, p={found.p_value:.2g}, "
        f"{100 * found.difference:+.1f} points (95% interval {low:+.1f} to {high:+.1f})"
    )


def _what_is_seen(num_mazes: int, gain: float | None) -> str:
    if gain is None:
        return f"{num_mazes} mazes are too few to show any gain over the base 9 times in 10"
    return f"{num_mazes} mazes show a gain of {100 * gain:.0f} points over the base 9 times in 10"
