"""What a picture shows, as labels for the vision tower: every visual token reads its own cell.

Replies alone teach a small model the rhythm of walks long before it looks at the picture. One maze cell is one
visual token, so the picture itself labels all of them: what stands there, which neighbours are free, and which way
leads to the target. The head that reads them is thrown away after fine-tuning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rl.base_model.build import CELL_PX
from rl.maze.grid import Direction, Maze, any_free_cell, way_to_target
from rl.maze.pictures import read_grid, render

NUM_CONTENTS = 5
"""Wall, floor, target, agent, agent on the target."""
NUM_WAYS = len(Direction) + 1
"""One of four moves, or none: the target itself."""
_IGNORED = -100


class CellLabels(NamedTuple):
    """Labels of the cells of one picture, in reading order."""

    content: np.ndarray
    """[H * W], in 0..4."""
    free: np.ndarray
    """[H * W, 4], boolean: whether the neighbour in each direction is free."""
    way: np.ndarray
    """[H * W], the move towards the target in 0..3, 4 at the target, -100 in walls."""


def cell_labels(image: np.ndarray) -> CellLabels:
    """Read the labels off a rendered maze, uint8 [H * 8, W * 8, 3]."""
    wall_HW, agent, target = read_grid(image, CELL_PX)
    content_HW = np.where(wall_HW, 0, 1)
    content_HW[target] = 2
    content_HW[agent] = 4 if agent == target else 3
    padded = np.pad(~wall_HW, 1)
    rows, columns = wall_HW.shape
    free = [padded[1 + r : 1 + r + rows, 1 + c : 1 + c + columns] for r, c in (move.delta for move in Direction)]
    maze = Maze(tuple("".join("#" if wall else "." for wall in row) for row in wall_HW), agent, target)
    way_HW = np.full((rows, columns), _IGNORED)
    way_HW[target] = len(Direction)
    for cell, direction in way_to_target(maze).items():
        way_HW[cell] = direction
    return CellLabels(content_HW.reshape(-1), np.stack(free, -1).reshape(-1, len(Direction)), way_HW.reshape(-1))


def snapshots(mazes: Iterator[Maze], cell_px: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Pictures of mazes with the agent on any free cell."""
    for maze in mazes:
        yield render(maze, any_free_cell(maze, rng), cell_px)


class PerceptionHead(nn.Module):
    """A linear layer on the vision tower's output, and the loss of its reading."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._tokens: Tensor | None = None
        width = model.config.vision_config.out_hidden_size
        self.read = nn.Linear(width, NUM_CONTENTS + len(Direction) + NUM_WAYS)
        model.model.visual.merger.register_forward_hook(self._keep)

    def _keep(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self._tokens = output

    def forward(self, images: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
        """Loss over all cells of ``images``, which the model has just seen in this order, and the share of free
        cells whose way to the target is read right (in 0..1)."""
        assert self._tokens is not None, "run the model first"
        labels = [cell_labels(image) for image in images]
        content = torch.from_numpy(np.concatenate([label.content for label in labels]))
        free = torch.from_numpy(np.concatenate([label.free for label in labels])).float()
        way = torch.from_numpy(np.concatenate([label.way for label in labels]))
        contents, frees, ways = self.read(self._tokens).split([NUM_CONTENTS, len(Direction), NUM_WAYS], dim=-1)
        loss = (
            functional.cross_entropy(contents, content)
            + functional.binary_cross_entropy_with_logits(frees, free)
            + functional.cross_entropy(ways, way, ignore_index=_IGNORED)
        )
        known = way != _IGNORED
        return loss, (ways.argmax(-1) == way)[known].float().mean()
