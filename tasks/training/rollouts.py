"""Episodes of training as rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rl.events import Rollout, Rollouts
from rl.maze.grid import turns_needed
from rl.maze.sources import maze_for
from rl.maze.walks import Turn, ending_of, turns_of
from rl.settings import DataSettings

TABLE = "rollouts.json"
"""Among the artifacts of the run's own page."""
MAX_STEPS = 64
"""Steps that the table has at most: of a longer run evenly spread ones, the first and the last among them."""


def spread(steps: Iterable[int], most: int = MAX_STEPS) -> list[int]:
    """At most so many of them, evenly."""
    found = sorted(steps)
    if len(found) <= most:
        return found
    return [found[round(number * (len(found) - 1) / (most - 1))] for number in range(most)]


def rollout_rows(samples: Iterable[Rollouts], data: DataSettings) -> list[dict[str, Any]]:
    """A row an episode: the maze, each turn with its reply, how it ended, reward and advantage."""
    return [
        {"step": sample.step, **_row(rollout, data)}
        for sample in sorted(samples, key=lambda sample: sample.step)
        for rollout in sample.rollouts
    ]


def _row(rollout: Rollout, data: DataSettings) -> dict[str, Any]:
    outcome = rollout.outcome
    maze = maze_for(outcome.seed, data.maze)
    turns = turns_of(maze, outcome)
    return {
        "seed": outcome.seed,
        "turns_needed": turns_needed(maze),
        "ending": str(ending_of(outcome, data.max_turns)),
        "turns": outcome.num_turns,
        "reward": rollout.reward,
        "advantage": rollout.advantage,
        "walk": outcome.actions,
        "turned_back": sum(turn.turned_back for turn in turns),
        "hit_walls": sum(turn.hit_wall for turn in turns),
        "replies": "\n".join(f"{number}: {_said(turn)}" for number, turn in enumerate(turns, 1)),
    }


def _said(turn: Turn) -> str:
    return turn.reply if turn.reply is not None else "(not kept)"
