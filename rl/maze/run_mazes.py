"""The mazes of one run: the evaluation set, checked, and training mazes drawn around it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rl.maze.eval_set import EvalSet, EvalSetMismatch, NotEnoughMazes, distinct_mazes, load_eval_set
from rl.maze.grid import num_mazes, turns_needed
from rl.settings import DataSettings


@dataclass(frozen=True)
class Mazes:
    """What one run plays."""

    data: DataSettings
    """What was asked for."""
    eval_set: EvalSet
    train_seeds: tuple[int, ...]
    train_sha256: str
    """Over seeds and fingerprints of the training mazes."""
    train_ceiling: int
    """Training mazes that can be solved within the turn limit."""


def prepare_mazes(settings: DataSettings) -> Mazes:
    """Load and check the evaluation set and draw the training mazes around it.

    Raises EvalSetMismatch when the manifest is not the one asked for, ValueError when the turn limit lets
    nobody solve anything, NotEnoughMazes when there are fewer than are wanted.
    """
    eval_set = load_eval_set(Path(settings.eval_manifest))
    maze = settings.maze
    if eval_set.sha256 != settings.eval_sha256:
        raise EvalSetMismatch(
            f"{settings.eval_manifest} has sha256 {eval_set.sha256}, data.eval_sha256 wants {settings.eval_sha256}; "
            "take the manifest that the settings mean"
        )
    if (eval_set.env_id, eval_set.height, eval_set.width) != (maze.env_id, maze.height, maze.width):
        raise EvalSetMismatch(
            f"{settings.eval_manifest} is for {eval_set.env_id} {eval_set.height}x{eval_set.width}, data.maze is "
            f"{maze.env_id} {maze.height}x{maze.width}"
        )
    if eval_set.ceiling(settings.max_turns) == 0:
        shortest = min(row.turns_needed for row in eval_set.mazes)
        raise ValueError(
            f"data.max_turns is {settings.max_turns}, the easiest evaluation maze needs {shortest} turns; raise it"
        )
    there_are, num_held_out = num_mazes(maze.height, maze.width), len(eval_set.fingerprints)
    if settings.num_train_mazes > there_are - num_held_out:
        raise NotEnoughMazes(
            f"there are {there_are} mazes of {maze.height}x{maze.width}, {num_held_out} of them for evaluation: "
            f"data.num_train_mazes wants {settings.num_train_mazes} of {there_are - num_held_out}; lower it, or take "
            "larger mazes"
        )
    drawn = [
        (seed, drawn)
        for seed, drawn in islice(
            (
                pair
                for pair in distinct_mazes(maze.height, maze.width, settings.first_train_seed)
                if pair[1].fingerprint not in eval_set.fingerprints
            ),
            settings.num_train_mazes,
        )
    ]
    lines = "\n".join(f"{seed} {maze.fingerprint}" for seed, maze in drawn)
    return Mazes(
        data=settings,
        eval_set=eval_set,
        train_seeds=tuple(seed for seed, _ in drawn),
        train_sha256=hashlib.sha256(lines.encode()).hexdigest(),
        train_ceiling=sum(turns_needed(maze) <= settings.max_turns for _, maze in drawn),
    )
