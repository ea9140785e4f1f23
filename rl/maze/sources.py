"""Whose mazes are played: each Gymnasium id that settings may name draws its own maze for a seed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rl.maze.grid import Maze, generate_maze
from rl.maze.visgym import visgym_maze
from rl.settings import ENV_ID, VISGYM_ENV_ID, MazeSettings

SOURCES: Mapping[str, Callable[[int, int, int], Maze]] = {ENV_ID: generate_maze, VISGYM_ENV_ID: visgym_maze}
"""Gymnasium id -> ``(seed, height, width)`` to the maze that its environment plays for that seed."""


def maze_for(seed: int, maze: MazeSettings) -> Maze:
    """The maze that the environment of these settings plays for ``seed``."""
    return SOURCES[maze.env_id](seed, maze.height, maze.width)
