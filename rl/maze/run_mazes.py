"""The mazes of one run: the evaluation set, checked; training mazes and judge mazes drawn around it and apart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rl.maze.eval_set import EvalMaze, EvalSet, EvalSetMismatch, NotEnoughMazes, distinct_mazes, load_eval_set
from rl.maze.grid import Maze, turns_needed
from rl.settings import FIRST_TRAIN_SEED, DataSettings, MazeSettings, seed_of


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
JUDGE_ONE_IN = 4
"""One maze in four is kept for judging: by its fingerprint, thus the same ones in every run."""


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
    first_seed = FIRST_TRAIN_SEED if settings.first_train_seed is None else settings.first_train_seed
    held_out, num_wanted = eval_set.fingerprints, settings.num_train_mazes
    drawn = _drawn(maze, first_seed, num_wanted, lambda mark: not may_judge(mark) and mark not in held_out)
    if len(drawn) < num_wanted:
        raise NotEnoughMazes(
            f"{len(drawn)} mazes of {maze.height}x{maze.width} are neither evaluated nor kept for judging, "
            f"data.num_train_mazes wants {num_wanted}; lower it, or take larger mazes"
        )
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
    held_out, size = prepare_mazes(settings).eval_set.fingerprints, settings.maze
    first_seed = seed_of(run_name, FIRST_JUDGE_SEED, NUM_JUDGE_SEEDS)
    drawn = _drawn(size, first_seed, num_wanted, lambda mark: may_judge(mark) and mark not in held_out)
    if len(drawn) < num_wanted:
        raise NotEnoughMazes(
            f"{len(drawn)} mazes of {size.height}x{size.width} are kept for judging and not evaluated while training, "
            f"judge.num_mazes wants {num_wanted}; lower it, or take larger mazes"
        )
    mazes = tuple(
        EvalMaze(seed=seed, fingerprint=maze.fingerprint, turns_needed=turns_needed(maze)) for seed, maze in drawn
    )
    return EvalSet(env_id=size.env_id, height=size.height, width=size.width, mazes=mazes)


def may_judge(fingerprint: str) -> bool:
    """Whether the maze is of the quarter that no run trains on, however many runs came before."""
    return int(fingerprint[:8], 16) % JUDGE_ONE_IN == 0


def _drawn(
    size: MazeSettings, first_seed: int, num_wanted: int, is_wanted: Callable[[str], bool]
) -> list[tuple[int, Maze]]:
    """Seed and maze by ascending seed; fewer than are wanted where there are no others."""
    all_mazes = distinct_mazes(size.env_id, size.height, size.width, first_seed)
    return list(islice(((seed, maze) for seed, maze in all_mazes if is_wanted(maze.fingerprint)), num_wanted))
