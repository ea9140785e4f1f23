"""Mazes as properties: nothing is faked, no GPU, no network."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.maze.grid import Cell, Maze, generate_maze, moved, shortest_path, turns_needed, way_to_target

seeds = st.integers(0, 2**63 - 1)
odd_sizes = st.integers(2, 6).map(lambda n: 2 * n + 1)


def distances_from(maze: Maze, origin: Cell) -> dict[Cell, int]:
    """Breadth-first distances, written apart from the code under test."""
    distance = {origin: 0}
    queue = deque([origin])
    while queue:
        row, column = queue.popleft()
        for step in ((row, column + 1), (row - 1, column), (row, column - 1), (row + 1, column)):
            if maze.walls[step[0]][step[1]] == "." and step not in distance:
                distance[step] = distance[(row, column)] + 1
                queue.append(step)
    return distance


@given(seeds, odd_sizes, odd_sizes)
def test_a_maze_is_perfect_one_path_between_any_two_cells(seed: int, height: int, width: int) -> None:
    maze = generate_maze(seed, height, width)
    free = [(r, c) for r in range(height) for c in range(width) if maze.is_free((r, c))]
    num_passages = sum(maze.is_free((r, c + 1)) for r, c in free) + sum(maze.is_free((r + 1, c)) for r, c in free)
    # A connected graph with one edge fewer than it has nodes is a tree.
    assert len(distances_from(maze, free[0])) == len(free)
    assert num_passages == len(free) - 1


@given(seeds, odd_sizes, odd_sizes)
def test_the_shortest_path_agrees_with_breadth_first_search(seed: int, height: int, width: int) -> None:
    maze = generate_maze(seed, height, width)
    path = shortest_path(maze)
    assert len(path) == distances_from(maze, maze.start)[maze.target]
    cells = [maze.start]
    for direction in path:
        cells.append(moved(cells[-1], direction))
    assert cells[-1] == maze.target
    assert all(maze.is_free(cell) for cell in cells)
    assert all(first != second for first, second in pairwise(cells))
    assert turns_needed(maze) == len(path) + 1


@given(seeds, odd_sizes, odd_sizes)
def test_agent_and_target_stand_in_opposite_corners_inside_the_wall(seed: int, height: int, width: int) -> None:
    maze = generate_maze(seed, height, width)
    assert {maze.start[0], maze.target[0]} == {1, height - 2}
    assert {maze.start[1], maze.target[1]} == {1, width - 2}
    wall = maze.wall_HW
    assert wall[[0, -1]].all()
    assert wall[:, [0, -1]].all()


@given(seeds)
def test_a_seed_fixes_the_maze(seed: int) -> None:
    first, second = generate_maze(seed, 7, 9), generate_maze(seed, 7, 9)
    assert first == second
    assert first.fingerprint == second.fingerprint


def test_spanning_trees_are_drawn_about_evenly() -> None:
    # 2 x 2 rooms have four spanning trees; 4 corner pairs: 16 tasks, each expected 125 times.
    counts = np.unique([generate_maze(seed, 5, 5).fingerprint for seed in range(2000)], return_counts=True)[1]
    assert len(counts) == 16
    assert counts.min() > 80
    assert counts.max() < 175


@pytest.mark.parametrize(("height", "width"), [(8, 9), (9, 8), (3, 9), (9, 3)])
def test_a_size_that_is_even_or_too_small_is_refused(height: int, width: int) -> None:
    with pytest.raises(ValueError, match=f"maze size is {height}x{width}; both sides must be odd and at least 5"):
        generate_maze(0, height, width)


@pytest.mark.parametrize("seed", range(5))
def test_the_way_to_the_target_is_the_first_move_of_every_shortest_path(seed: int) -> None:
    maze = generate_maze(seed, 9, 9)
    way = way_to_target(maze)
    free = [(r, c) for r in range(9) for c in range(9) if maze.is_free((r, c))]
    assert set(way) == set(free) - {maze.target}
    assert all(way[cell] == shortest_path(maze, cell)[0] for cell in way)
    assert all(moved(moved(cell, move), move.opposite) == cell for cell, move in way.items())
