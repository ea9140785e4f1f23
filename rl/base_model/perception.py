"""An auxiliary loss for fine-tuning: every visual token says what stands in its cell and which neighbours are free.

Oracle replies alone teach a small model the rhythm of walks long before it looks at the picture. One maze cell is
one visual token, so the picture itself labels all of them. The head is thrown away after training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rl.base_model.build import CELL_PX
from rl.maze import Direction
from rl.render import read_grid

NUM_CONTENTS = 5
"""Wall, floor, target, agent, agent on the target."""


def cell_labels(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Content [H * W], in 0..4, and free neighbours [H * W, 4], boolean, of a rendered maze."""
    wall_HW, agent, target = read_grid(image, CELL_PX)
    content_HW = np.where(wall_HW, 0, 1)
    content_HW[target] = 2
    content_HW[agent] = 4 if agent == target else 3
    padded = np.pad(~wall_HW, 1)
    rows, columns = wall_HW.shape
    free = [padded[1 + r : 1 + r + rows, 1 + c : 1 + c + columns] for r, c in (move.delta for move in Direction)]
    return content_HW.reshape(-1), np.stack(free, axis=-1).reshape(-1, len(Direction))


class PerceptionHead(nn.Module):
    """A linear layer on the vision tower's output, and the loss of its reading."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._tokens: Tensor | None = None
        self.read = nn.Linear(model.config.vision_config.out_hidden_size, NUM_CONTENTS + len(Direction))
        model.model.visual.merger.register_forward_hook(self._keep)

    def _keep(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self._tokens = output

    def forward(self, images: Sequence[np.ndarray]) -> Tensor:
        """Loss over all cells of ``images``, which the model has just seen in this order."""
        assert self._tokens is not None, "run the model first"
        labels = [cell_labels(image) for image in images]
        content = torch.from_numpy(np.concatenate([content for content, _ in labels]))
        free = torch.from_numpy(np.concatenate([free for _, free in labels])).float()
        read = self.read(self._tokens)
        return functional.cross_entropy(read[:, :NUM_CONTENTS], content) + functional.binary_cross_entropy_with_logits(
            read[:, NUM_CONTENTS:], free
        )
