"""Perfect mazes on an odd grid, seeded, with shortest paths. Pure: no images, no text, no I/O."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

Cell = tuple[int, int]


class Direction(IntEnum):
    """The four moves, numbered as in VisGym's maze_2d."""

    RIGHT = 0
    UP = 1
    LEFT = 2
    DOWN = 3

    @property
    def delta(self) -> Cell:
        """Change of (row, column)."""
        return _DELTAS[self]

    @property
    def opposite(self) -> Direction:
        """The way back."""
        return Direction((self + 2) % 4)


_DELTAS: dict[Direction, Cell] = {
    Direction.RIGHT: (0, 1),
    Direction.UP: (-1, 0),
    Direction.LEFT: (0, -1),
    Direction.DOWN: (1, 0),
}


@dataclass(frozen=True)
class Maze:
    """One maze: rooms at odd coordinates, walls or passages between them, a wall all around.

    ``walls`` holds one string per row, ``#`` for a wall and ``.`` for a free cell, so a maze is
    hashable, comparable and readable in a log.
    """

    walls: tuple[str, ...]
    start: Cell
    target: Cell

    @property
    def shape_HW(self) -> tuple[int, int]:
        return len(self.walls), len(self.walls[0])

    @property
    def wall_HW(self) -> np.ndarray:
        """Boolean array [H, W], true where there is a wall."""
        return np.array([[cell == "#" for cell in row] for row in self.walls])

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the grid, start and target: equal exactly when the task is equal."""
        text = "\n".join((*self.walls, f"{self.start}->{self.target}"))
        return hashlib.sha256(text.encode()).hexdigest()

    def is_free(self, cell: Cell) -> bool:
        row, column = cell
        return self.walls[row][column] == "."

    def neighbours(self, cell: Cell) -> Iterator[tuple[Direction, Cell]]:
        """Free cells one move away, in the order of ``Direction``."""
        for direction in Direction:
            step = moved(cell, direction)
            if self.is_free(step):
                yield direction, step


def moved(cell: Cell, direction: Direction) -> Cell:
    """The cell one step away, whether or not it is free."""
    delta = direction.delta
    return cell[0] + delta[0], cell[1] + delta[1]


def num_mazes(height: int, width: int) -> int:
    """How many mazes of this size there are: spanning trees of its rooms, each with four ways to place the corners.

    Trees of a grid are the product of its Laplacian's eigenvalues but the zero, over the number of rooms (Kirchhoff).
    """
    rows, columns = height // 2, width // 2
    row_values = 2 - 2 * np.cos(np.pi * np.arange(rows) / rows)
    column_values = 2 - 2 * np.cos(np.pi * np.arange(columns) / columns)
    eigenvalues = np.add.outer(row_values, column_values).ravel()[1:]
    return 4 * round(float(np.prod(eigenvalues)) / (rows * columns))


def generate_maze(seed: int, height: int, width: int) -> Maze:
    """Draw a uniformly random perfect maze of ``height`` x ``width`` cells; equal seeds give equal mazes.

    Wilson's loop-erased random walks (D. B. Wilson, STOC 1996) make the spanning tree of rooms
    uniform. Agent and target take opposite corners, in one of four ways.

    Raises ValueError unless both sizes are odd and at least 5.
    """
    rng = np.random.default_rng(seed)
    return maze_of_tree(_wilson_tree(rng, height // 2, width // 2), height, width, lambda: int(rng.integers(4)))


def maze_of_tree(tree: Sequence[tuple[Cell, Cell]], height: int, width: int, corner: Callable[[], int]) -> Maze:
    """The maze whose passages are the tree's edges between rooms; ``corner`` is asked for the placing, 0 to 3.

    Raises ValueError unless both sizes are odd and at least 5.
    """
    if height % 2 == 0 or width % 2 == 0 or min(height, width) < 5:
        raise ValueError(f"maze size is {height}x{width}; both sides must be odd and at least 5")
    grid = [["#"] * width for _ in range(height)]
    for first, second in tree:
        for row, column in (first, second):
            grid[2 * row + 1][2 * column + 1] = "."
        grid[first[0] + second[0] + 1][first[1] + second[1] + 1] = "."
    near, far = (1, 1), (height - 2, width - 2)
    corners = [(near, far), (far, near), ((far[0], 1), (1, far[1])), ((1, far[1]), (far[0], 1))]
    start, target = corners[corner()]
    return Maze(tuple("".join(row) for row in grid), start, target)


def _wilson_tree(rng: np.random.Generator, rows: int, columns: int) -> list[tuple[Cell, Cell]]:
    """Edges of a uniform spanning tree over ``rows`` x ``columns`` rooms."""
    rooms = [(row, column) for row in range(rows) for column in range(columns)]
    in_tree = {rooms[int(rng.integers(len(rooms)))]}
    edges = []
    for room in rooms:
        # Overwriting the exit of a revisited room is what erases the loop.
        exits: dict[Cell, Cell] = {}
        walker = room
        while walker not in in_tree:
            choices = [moved(walker, direction) for direction in Direction]
            choices = [(r, c) for r, c in choices if 0 <= r < rows and 0 <= c < columns]
            exits[walker] = choices[int(rng.integers(len(choices)))]
            walker = exits[walker]
        walker = room
        while walker not in in_tree:
            in_tree.add(walker)
            edges.append((walker, exits[walker]))
            walker = exits[walker]
    return edges


def shortest_path(maze: Maze, start: Cell | None = None) -> list[Direction]:
    """Fewest moves from ``start`` (default: the maze's own) to the target; empty when already there."""
    origin = maze.start if start is None else start
    came_by: dict[Cell, tuple[Cell, Direction] | None] = {origin: None}
    queue = deque([origin])
    while queue and maze.target not in came_by:
        cell = queue.popleft()
        for direction, step in maze.neighbours(cell):
            if step not in came_by:
                came_by[step] = (cell, direction)
                queue.append(step)
    if maze.target not in came_by:
        raise ValueError(f"target {maze.target} cannot be reached from {origin}: not a perfect maze")
    moves: list[Direction] = []
    link = came_by[maze.target]
    while link is not None:
        cell, direction = link
        moves.append(direction)
        link = came_by[cell]
    return moves[::-1]


def way_to_target(maze: Maze) -> dict[Cell, Direction]:
    """For every free cell but the target, the first move of its shortest path."""
    way: dict[Cell, Direction] = {}
    queue = deque([maze.target])
    while queue:
        cell = queue.popleft()
        for direction, step in maze.neighbours(cell):
            if step != maze.target and step not in way:
                way[step] = direction.opposite
                queue.append(step)
    return way


def any_free_cell(maze: Maze, rng: np.random.Generator) -> Cell:
    """A free cell, all equally likely."""
    free = np.argwhere(~maze.wall_HW)
    row, column = free[int(rng.integers(len(free)))]
    return int(row), int(column)


def turns_needed(maze: Maze) -> int:
    """Turns of a perfect agent: every move of the shortest path, and the stop."""
    return len(shortest_path(maze)) + 1
