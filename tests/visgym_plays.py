"""VisGym's own environment beside ours of the same id, step by step: ``python tests/visgym_plays.py``.

Run with VisGym's folder first on PYTHONPATH (it installs itself as ``gymnasium``) in an interpreter that has pygame.
Prints what VisGym's generator and solver say of the first mazes, and where the two environments differed.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import gymnasium

from rl.maze.environment import VisGymMaze2DEnv
from rl.maze.grid import Maze
from rl.settings import VISGYM_ENV_ID

NUM_MAZES, NUM_STEPS = 64, 60
OTHER_SEEDS = (100_000, 2**40 + 3, 2**62 - 1)
"""As training and the proof take them."""


def as_maze(info: dict[str, Any]) -> Maze:
    walls = tuple("".join("#" if wall else "." for wall in row) for row in info["maze_map"])
    (start, target) = ((int(row), int(column)) for row, column in (info["agent"], info["target"]))
    return Maze(walls, start, target)


def actions_for(solution: list[str], seed: int) -> list[str]:
    """To the target, off it and about; the stop comes last."""
    rng = random.Random(seed)
    moves = [action for action in solution if "move" in action]
    return [*moves, *(f"('move', {rng.randrange(4)})" for _ in range(NUM_STEPS)), "('stop', 'stop')"]


def differences(theirs: Any, ours: Any, seed: int) -> list[str]:
    """Where they part: texts, rewards, ends, pictures."""
    theirs.reset(seed=seed)
    ours.reset(seed=seed)
    found = [] if theirs.get_prompt() == ours.get_prompt() else [f"seed {seed}: prompt"]
    # Its first picture is asked for: the one that reset returns may be of the maze before.
    if (theirs.render() != ours.render()).any():
        found.append(f"seed {seed}: first picture")
    for number, action in enumerate(actions_for(theirs.solve(), seed)):
        seen, wanted = ours.step(action), theirs.step(action)
        same = (seen[1:4], seen[4]["env_feedback"]) == (tuple(wanted[1:4]), wanted[4]["env_feedback"])
        if not same or (seen[0] != wanted[0]).any():
            found.append(f"seed {seed}: turn {number}, {action}")
    return found


def main() -> None:
    theirs: Any = gymnasium.make(VISGYM_ENV_ID).unwrapped
    ours = VisGymMaze2DEnv()
    mazes, different = [], list[str]()
    for seed in (*range(NUM_MAZES), *OTHER_SEEDS):
        maze = as_maze(theirs.reset(seed=seed)[1])
        num_moves = sum("move" in action for action in theirs.solve())
        mazes.append({"seed": seed, "fingerprint": maze.fingerprint, "turns_needed": num_moves + 1})
        different += differences(theirs, ours, seed)
    json.dump({"gymnasium": gymnasium.__file__, "mazes": mazes, "different": different}, sys.stdout)


if __name__ == "__main__":
    main()
