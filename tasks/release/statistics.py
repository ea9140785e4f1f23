"""Figures of a comparison of two players on the same mazes, and how sure they are. Pure.

A pair of evaluations is a table of four counts: ``wins`` (only the first solved), ``losses`` (only the second),
``both`` and ``neither``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.stats import binom, binomtest


@dataclass(frozen=True)
class Difference:
    """How much larger one share of the same things is than another."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Share:
    """So many of so many."""

    num_solved: int
    num_mazes: int


def wilson_interval(num_solved: int, num_mazes: int, confidence: float = 0.95) -> tuple[float, float]:
    """Score interval of a share (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927), as scipy computes it."""
    found = binomtest(num_solved, num_mazes).proportion_ci(confidence, method="wilson")
    return float(found.low), float(found.high)


def mcnemar_p_value(wins: int, losses: int) -> float:
    """Two-sided exact test that wins and losses are equally likely; 1 where there are none.

    Q. McNemar, Psychometrika 12, 1947, with the binomial distribution in place of its approximation.
    """
    return float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


def mcnemar_power(gain: float, loss_share: float, num_mazes: int, max_p_value: float) -> float:
    """How often the exact test finds the first player better, at most ``max_p_value``.

    ``loss_share`` of all mazes are solved by the second player alone, ``loss_share + gain`` by the first alone. Exact:
    summed over how many mazes only one of them solves, and how many of those the first one does.
    """
    only_one = min(1.0, 2 * loss_share + gain)
    if only_one <= 0:
        return 0.0
    counts = np.arange(num_mazes + 1)
    wins_wanted = binom.isf(max_p_value / 2, counts, 0.5) + 1
    found = binom.sf(wins_wanted - 1, counts, min(1.0, (loss_share + gain) / only_one))
    return float(np.sum(binom.pmf(counts, num_mazes, only_one) * found))


def visible_gain(num_mazes: int, loss_share: float, max_p_value: float, power: float = 0.9) -> float | None:
    """Smallest gain that the exact test finds with this power; None where so few mazes show none for sure."""
    low, high = 0.0, 1.0 - 2 * loss_share
    if high <= 0 or mcnemar_power(high, loss_share, num_mazes, max_p_value) < power:
        return None
    while high - low > 1e-4:
        middle = (low + high) / 2
        if mcnemar_power(middle, loss_share, num_mazes, max_p_value) < power:
            low = middle
        else:
            high = middle
    return high


def paired_difference(wins: int, losses: int, both: int, neither: int, confidence: float = 0.95) -> Difference:
    """Difference of two solve rates on the same mazes, with Newcombe's interval.

    R. G. Newcombe, "Improved confidence intervals for the difference between binomial proportions based on paired
    data", Statistics in Medicine 17, 1998: method 10, which joins both shares' Wilson intervals by their correlation,
    continuity-corrected where it is positive.
    """
    num_mazes = wins + losses + both + neither
    first, second = both + wins, both + losses
    value = (wins - losses) / num_mazes
    low_1, high_1 = wilson_interval(first, num_mazes, confidence)
    low_2, high_2 = wilson_interval(second, num_mazes, confidence)
    p_1, p_2, phi = first / num_mazes, second / num_mazes, _phi(wins, losses, both, neither)
    below = _joined(p_1 - low_1, high_2 - p_2, phi)
    above = _joined(high_1 - p_1, p_2 - low_2, phi)
    return Difference(value, value - below, value + above)


def _joined(one: float, other: float, phi: float) -> float:
    return sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))


def _phi(wins: int, losses: int, both: int, neither: int) -> float:
    margins = (both + wins) * (losses + neither) * (both + losses) * (wins + neither)
    if not margins:
        return 0.0
    cross = both * neither - wins * losses
    if cross > 0:
        cross = max(cross - (wins + losses + both + neither) / 2, 0)
    return cross / sqrt(margins)


def path_efficiency(num_turns: Sequence[int], turns_needed: Sequence[int]) -> float | None:
    """Mean of the turns needed over the turns taken, over solved mazes; 1 is a perfect walk, None where none is solved.

    SPL's ratio (P. Anderson et al., "On Evaluation of Embodied Navigation Agents", arXiv:1807.06757) without its factor
    for success: the solve rate has that one.
    """
    ratios = [needed / taken for taken, needed in zip(num_turns, turns_needed, strict=True)]
    return sum(ratios) / len(ratios) if ratios else None


def solved_by_length(solved: Sequence[bool], turns_needed: Sequence[int]) -> Mapping[int, Share]:
    """Turns that a perfect agent needs -> how many of those mazes are solved, ascending."""
    pairs = list(zip(turns_needed, solved, strict=True))
    return {
        length: Share(
            sum(was for needed, was in pairs if needed == length), sum(needed == length for needed, _ in pairs)
        )
        for length in sorted(set(turns_needed))
    }
