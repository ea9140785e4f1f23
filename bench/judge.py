"""Who is promoted, and how rightly: ``python -m bench.judge [draws=2000]``. Numbers alone, nothing is played.

A model solves a maze where its strength exceeds the maze's difficulty; part of what is left is the run's own, part the
step's own. How alike two models find mazes is taken from a measured pair. Two designs are compared: one set of 64
mazes chooses the step and judges it by a margin, or the 64 choose and fresh mazes judge by an exact test.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, multivariate_normal, norm

from tasks.release.statistics import mcnemar_power, visible_gain

Array = np.ndarray
WON, LOST, BOTH, NEITHER = 67, 6, 115, 68
"""A champion of step 16 against its base, on 256 mazes through the endpoint."""
NUM_CHOOSING, CHAMPION_RATE, NUM_CYCLES = 64, 0.71, 50
SIZES, DELTAS = (64, 128, 192, 256, 288, 384), (0.0, -0.01, -0.02, -0.05)


@dataclass(frozen=True)
class Design:
    """How a candidate is judged against the champion."""

    num_judging: int = 0
    """Fresh mazes; 0 where the mazes that choose judge too, and one more won than lost is enough."""
    max_p_value: float = 0.05


def likeness() -> float:
    """Correlation of two models' luck with a maze, by which the measured pair solves so many in common."""
    total = WON + LOST + BOTH + NEITHER
    one, other = float(norm.ppf((BOTH + WON) / total)), float(norm.ppf((BOTH + LOST) / total))

    found: Any = brentq(lambda rho: _both_above(one, other, rho) - BOTH / total, 0.0, 0.999)
    return float(found)


def loss_share(gain: float, rate: float, rho: float) -> float:
    """Share of mazes that only the weaker of two models solves, ``rate`` and ``rate + gain``."""
    return rate - _both_above(float(norm.ppf(rate)), float(norm.ppf(rate + gain)), rho)


def _both_above(one: float, other: float, rho: float) -> float:
    law: Any = multivariate_normal
    return float(law([0, 0], [[1, rho], [rho, 1]]).cdf([one, other]))


def solved(draw: np.random.Generator, rate: Array, hard: Array, num_steps: int, rho: float) -> Array:
    """Steps of one run each, equally good: [draws, steps, mazes]; ``hard`` is [draws, mazes]."""
    run = draw.standard_normal(hard.shape) * np.sqrt((1 - rho) / 2)
    step = draw.standard_normal((hard.shape[0], num_steps, hard.shape[1])) * np.sqrt((1 - rho) / 2)
    strength = norm.ppf(rate)[:, None, None]
    return strength + (np.sqrt(rho) * hard + run)[:, None, :] + step > 0


def choosing_bias(num_steps: int, draws: int, rho: float, seed: int = 0) -> float:
    """Mazes of 64 by which the best of equal steps scores above its true rate."""
    draw = np.random.default_rng(seed)
    hard = draw.standard_normal((draws, NUM_CHOOSING))
    scores = solved(draw, np.full(draws, CHAMPION_RATE), hard, num_steps, rho).sum(axis=2)
    return float(scores.max(axis=1).mean() - CHAMPION_RATE * NUM_CHOOSING)


def cycles(
    design: Design, delta: float, draws: int, rho: float, num_cycles: int = NUM_CYCLES, seed: int = 0
) -> tuple[float, float]:
    """Changes of the champion, and by how much its true rate has moved, each candidate being ``delta`` off it."""
    draw = np.random.default_rng(seed)
    rate, changes = np.full(draws, CHAMPION_RATE), np.zeros(draws)
    hard = draw.standard_normal((draws, NUM_CHOOSING))
    standing = solved(draw, rate, hard, 4, rho)
    standing = np.take_along_axis(standing, standing.sum(axis=2).argmax(axis=1)[:, None, None], axis=1)[:, 0]
    for _ in range(num_cycles):
        steps = solved(draw, np.clip(rate + delta, 0.001, 0.999), hard, 4, rho)
        best = np.take_along_axis(steps, steps.sum(axis=2).argmax(axis=1)[:, None, None], axis=1)[:, 0]
        if design.num_judging:
            fresh = draw.standard_normal((draws, design.num_judging))
            candidate = solved(draw, np.clip(rate + delta, 0.001, 0.999), fresh, 1, rho)[:, 0]
            promoted = is_superior(candidate, solved(draw, rate, fresh, 1, rho)[:, 0], design.max_p_value)
        else:
            promoted = best.sum(axis=1) > standing.sum(axis=1)
        standing = np.where(promoted[:, None], best, standing)
        rate, changes = np.where(promoted, np.clip(rate + delta, 0.001, 0.999), rate), changes + promoted
    return float(changes.mean()), float(rate.mean() - CHAMPION_RATE)


def is_superior(candidate: Array, champion: Array, max_p_value: float) -> Array:
    """Whether the exact McNemar test says so, for each row."""
    wins, losses = (candidate & ~champion).sum(axis=1), (champion & ~candidate).sum(axis=1)
    return (wins > losses) & (2 * binom.sf(wins - 1, wins + losses, 0.5) <= max_p_value)


def main(argv: list[str]) -> None:
    draws, rho = int(dict(argument.split("=", 1) for argument in argv[1:]).get("draws", 2000)), likeness()
    print(f"likeness of two models: {rho:.3f}; {draws} draws")
    for num_steps in (4, 6, 16):
        print(
            f"the best of {num_steps} equal steps scores {choosing_bias(num_steps, draws, rho):+.2f} mazes of 64 high"
        )
    lost = loss_share(0.08, (BOTH + LOST) / 256, rho)
    print(f"with a gain of 8 points over the base {100 * lost:.1f}% of the mazes are lost")
    for size in SIZES:
        gains = [visible_gain(size, share, 0.05) for share in (LOST / 256, lost)]
        seen = ", ".join("none" if gain is None else f"{100 * gain:.1f}" for gain in gains)
        power = [mcnemar_power(0.08, share, size, 0.05) for share in (LOST / 256, lost)]
        print(f"{size} mazes: power {power[0]:.2f} and {power[1]:.2f} for 8 points; seen 9 times in 10: {seen} points")
    designs = {
        "the same 64, one ahead": Design(),
        "128 fresh, one ahead": Design(128, max_p_value=1.0),
        "128 fresh, p<=0.05": Design(128),
    }
    for name, design in designs.items():
        for delta in DELTAS:
            once = cycles(design, delta, draws, rho, 1)[0]
            changes, moved = cycles(design, delta, max(50, draws // 4), rho)
            print(
                f"{name}, candidates {100 * delta:+.0f} points: promoted {once:.3f}; {NUM_CYCLES} cycles change the "
                f"champion {changes:.1f} times, its true rate by {100 * moved:+.1f} points"
            )


if __name__ == "__main__":
    main(sys.argv)
