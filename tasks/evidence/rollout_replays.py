"""Replays of training: one HTML page of the episodes that a run kept of its steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from rl.events import Rollout, Rollouts
from rl.maze.score import EvalRules, Outcome, fewer_words
from rl.maze.sources import maze_for
from tasks.evidence.walk_pages import Texts, colours, maze_part, walk_page, walk_part
from tasks.training.rollouts import MAX_STEPS, spread

MAX_BYTES = 2_000_000
WORDS = (16_000, 8_000, 4_000, 2_000, 1_000, 0)
"""Characters of a step's replies that the page keeps: the first of these with which it is small enough."""


def rollout_page(run_name: str, rules: EvalRules, samples: Sequence[Rollouts]) -> str:
    """The page, at most MAX_BYTES long: first it does without words, then without steps. ``rules`` are the run's."""
    page = ""
    for num_steps, max_words in _ever_smaller():
        chosen = set(spread((sample.step for sample in samples), num_steps))
        kept = [sample for sample in samples if sample.step in chosen]
        page = walk_page("rollout_page", rollout_data(run_name, rules, kept, max_words))
        if len(page.encode()) <= MAX_BYTES:
            break
    return page


def _ever_smaller() -> Iterator[tuple[int, int]]:
    yield from ((MAX_STEPS, max_words) for max_words in WORDS)
    num_steps = MAX_STEPS
    while num_steps := num_steps // 2:
        yield num_steps, 0


def rollout_data(run_name: str, rules: EvalRules, samples: Sequence[Rollouts], max_words: int) -> dict[str, Any]:
    """What the page shows; each maze and each text once."""
    ordered = sorted(samples, key=lambda sample: sample.step)
    seeds = dict.fromkeys(rollout.outcome.seed for sample in ordered for rollout in sample.rollouts)
    mazes, texts = {seed: maze_for(seed, rules.maze) for seed in seeds}, Texts()

    def group_part(seed: int, episodes: Iterable[tuple[Outcome, Rollout]]) -> dict[str, Any]:
        return {
            "seed": seed,
            "episodes": [
                {
                    "reward": rollout.reward,
                    "advantage": rollout.advantage,
                    "walk": walk_part(mazes[seed], outcome, rules.max_turns, texts),
                }
                for outcome, rollout in episodes
            ],
        }

    return {
        "run_name": run_name,
        "about": about(rules, len(ordered), max_words),
        "cell_px": rules.maze.cell_px,
        "max_turns": rules.max_turns,
        "colours": colours(),
        "mazes": {seed: maze_part(seed, maze) for seed, maze in mazes.items()},
        "steps": [
            {"step": sample.step, "groups": [group_part(*group) for group in _by_maze(sample, max_words)]}
            for sample in ordered
        ],
        "texts": list(texts.numbers),
    }


def _by_maze(sample: Rollouts, max_words: int) -> Iterator[tuple[int, Iterable[tuple[Outcome, Rollout]]]]:
    """Seed, and what was played of it; those of a maze stand together (Rollouts)."""
    outcomes = fewer_words((rollout.outcome for rollout in sample.rollouts), max_words)
    return groupby(zip(outcomes, sample.rollouts, strict=True), key=lambda episode: episode[0].seed)


def about(rules: EvalRules, num_steps: int, max_words: int) -> str:
    """Two lines below the page's title."""
    size, steps = rules.maze, "1 step" if num_steps == 1 else f"{num_steps} steps"
    return (
        f"Episodes of {steps} of training, as they were sampled: of each step the first maze whose episodes ended in "
        "both ways, from which something is learned, and the first whose did not. So their shares are not the step's. "
        f"{size.height}x{size.width} cells, at most {rules.max_turns} turns each"
        + (f"; of a step's replies the first {max_words} characters are kept." if max_words else ", without the words.")
    )
