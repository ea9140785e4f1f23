"""VisGym's ``maze_2d`` mazes without VisGym: the same maze for the same seed, and its pictures to the pixel. Pure.

What is known of it (visgym/VisGym, gymnasium/envs/maze_2d/maze_2d.py at commit 0289034b): ``reset(seed)`` seeds NumPy's
generator, whose first number seeds Python's, which draws a tree of rooms by Wilson's walks; the second number is the
corner. Only the order in which numbers are drawn is its own; tests hold the mazes against VisGym's.
"""

from __future__ import annotations

from random import Random

import numpy as np

from rl.maze.grid import Cell, Maze, maze_of_tree
from rl.settings import VISGYM_CELL_PX

_WAYS: tuple[Cell, ...] = ((0, 1), (1, 0), (0, -1), (-1, 0))
"""What its numbers 0 to 3 mean for a walk."""


def visgym_maze(seed: int, height: int, width: int) -> Maze:
    """The maze of ``reset(seed=seed)``; raises ValueError unless both sizes are odd and at least 5."""
    numbers = np.random.default_rng(seed)
    tree = _tree(Random(int(numbers.integers(2**32))), height // 2, width // 2)
    return maze_of_tree(tree, height, width, corner=lambda: int(numbers.integers(4)))


def visgym_disc(cell_px: int) -> np.ndarray:
    """The agent in its pictures: of 25 by 25 pixels pygame's circle covers 12 by 12, with the corners cut off."""
    across = np.abs(np.arange(cell_px) - (VISGYM_CELL_PX - 2) / 2)
    return (np.maximum.outer(across, across) < 6) & (np.add.outer(across, across) <= 7)


def _tree(rng: Random, rows: int, columns: int) -> list[tuple[Cell, Cell]]:
    """Edges of a spanning tree over ``rows`` x ``columns`` rooms."""
    outside = [(row, column) for row in range(rows) for column in range(columns)]
    inside = {outside.pop(rng.randint(0, len(outside) - 1))}
    edges: list[tuple[Cell, Cell]] = []
    while outside:
        first = outside[rng.randint(0, len(outside) - 1)]
        left_by = _walk(rng, first, inside, rows, columns)
        room = first
        while room not in inside:
            inside.add(room)
            outside.remove(room)
            edges.append((room, left_by[room]))
            room = left_by[room]
    return edges


def _walk(rng: Random, first: Cell, inside: set[Cell], rows: int, columns: int) -> dict[Cell, Cell]:
    """Room -> the room that it was last left for, on a walk from ``first`` into the tree."""
    left_by: dict[Cell, Cell] = {}
    room = first
    while room not in inside:
        down, across = _WAYS[rng.randint(0, 3)]
        step = room[0] + down, room[1] + across
        if 0 <= step[0] < rows and 0 <= step[1] < columns:
            left_by[room] = room = step
    return left_by
