"""An auxiliary loss for fine-tuning: the hidden state just before a reply already names the action.

A reply's first token says only move or stop, and one turn in a dozen is a stop: a small model learns that share long
before it learns to look. Asked for the direction as well at this position, it has a reason to look at every turn. The
head is thrown away after its stage.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rl.maze.grid import Direction
from rl.maze.prompts import Move, Stop, action_text

NUM_ACTIONS = len(Direction) + 1
"""Four moves and the stop."""


class DecisionHead(nn.Module):
    """A linear layer on the last hidden state before each reply that is learned."""

    def __init__(self, tokenizer: Any, hidden_size: int) -> None:
        super().__init__()
        self.read = nn.Linear(hidden_size, NUM_ACTIONS)
        actions = [*(Move(direction) for direction in Direction), Stop()]
        self._replies = [tokenizer.encode(action_text(action), add_special_tokens=False) for action in actions]

    def forward(self, hidden_BTD: Tensor, labels_BT: Tensor) -> tuple[Tensor, Tensor]:  # noqa: N803 - axes
        """Cross-entropy over all learned replies, and the share of stops that are read as such."""
        rows, starts = torch.nonzero((labels_BT[:, 1:] != -100) & (labels_BT[:, :-1] == -100), as_tuple=True)
        actions = torch.tensor(
            [self._action(labels_BT[row, start + 1 :]) for row, start in zip(rows, starts, strict=True)]
        )
        logits = self.read(hidden_BTD[rows, starts])
        stops = actions == NUM_ACTIONS - 1
        found = (logits.argmax(-1) == actions)[stops].float()
        return functional.cross_entropy(logits, actions), found.mean() if len(found) else torch.tensor(0.0)

    def _action(self, labels: Tensor) -> int:
        """Which action's tokens the labels begin with."""
        for number, ids in enumerate(self._replies):
            if labels[: len(ids)].tolist() == ids:
                return number
        raise ValueError(f"labels {labels[:8].tolist()} begin with no action")
