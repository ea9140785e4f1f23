"""Steps per second of the maze environment, picture and PNG included: ``python -m bench.env <environment id>``.

Run with VisGym's folder first on PYTHONPATH it measures VisGym's environment of that id (it installs itself as
``gymnasium``); walk and mazes' size are the same. Ours makes its PNG itself, VisGym's pixels go through Pillow as they
do in an episode. Needs pygame there.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import gymnasium

from rl.maze.environment import ENV_ID, register_maze_2d
from rl.maze.grid import Direction
from rl.maze.pictures import png_bytes
from rl.maze.prompts import Move, action_text

NUM_STEPS, STEPS_PER_MAZE = 3000, 15


def steps_per_s(env: Any) -> float:
    """15 moves in each maze, every direction in turn; each step ends with its PNG."""
    moves = itertools.cycle(action_text(Move(direction)) for direction in Direction)
    started = time.monotonic()
    for seed in range(NUM_STEPS // STEPS_PER_MAZE):
        env.reset(seed=seed)
        for _ in range(STEPS_PER_MAZE):
            picture = env.step(next(moves))[0]
            _ = env.png() if hasattr(env, "png") else png_bytes(picture)
    return NUM_STEPS / (time.monotonic() - started)


def main(argv: list[str]) -> None:
    register_maze_2d()
    size: dict[str, Any] = {"cell_px": 25} if argv[1] == ENV_ID else {}
    print(steps_per_s(gymnasium.make(argv[1], maze_height=9, maze_width=9, **size).unwrapped))


if __name__ == "__main__":
    main(sys.argv)
