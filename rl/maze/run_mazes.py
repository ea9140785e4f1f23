"""The mazes of one run: the evaluation set, checked, and training mazes drawn around it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rl.maze.eval_set import EvalMaze, EvalSet, EvalSetMismatch, NotEnoughMazes, distinct_mazes, load_eval_set
from rl.maze.grid import num_mazes, turns_needed
from rl.maze.sources import maze_for
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


FIRST_JUDGE_SEED, NUM_JUDGE_SEEDS = 10_000_000, 2_000_000_000
"""Where runs draw their judge mazes: above the seeds of training, below 2^31."""


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
                for pair in distinct_mazes(maze.env_id, maze.height, maze.width, settings.first_train_seed)
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


def draw_judge_mazes(settings: DataSettings, run_name: str, num_wanted: int) -> EvalSet:
    """Mazes that a run neither trains on nor chooses its step by: the run's name says which, and they decide.

    Raises NotEnoughMazes, and what ``prepare_mazes`` raises.
    """
    mazes, size = prepare_mazes(settings), settings.maze
    trained_on = {maze_for(seed, size).fingerprint for seed in mazes.train_seeds}
    known = trained_on | mazes.eval_set.fingerprints
    left = num_mazes(size.height, size.width) - len(known)
    if num_wanted > left:
        raise NotEnoughMazes(
            f"{left} mazes of {size.height}x{size.width} are neither trained on nor evaluated while training, "
            f"judge.num_mazes wants {num_wanted}; lower it or data.num_train_mazes, or take larger mazes"
        )
    first_seed = FIRST_JUDGE_SEED + int(hashlib.sha256(run_name.encode()).hexdigest(), 16) % NUM_JUDGE_SEEDS
    others = (
        (seed, maze)
        for seed, maze in distinct_mazes(size.env_id, size.height, size.width, first_seed)
        if maze.fingerprint not in known
    )
    drawn = tuple(
        EvalMaze(seed=seed, fingerprint=maze.fingerprint, turns_needed=turns_needed(maze))
        for seed, maze in islice(others, num_wanted)
    )
    return EvalSet(env_id=size.env_id, height=size.height, width=size.width, mazes=drawn)
