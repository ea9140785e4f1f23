"""How the tiny base model is built and fine-tuned."""

from __future__ import annotations

from pydantic import Field

from rl.settings import MazeSettings, Settings


class SightStage(Settings):
    """Training of the vision tower alone: every visual token reads its own cell."""

    num_steps: int = Field(ge=1)
    """Optimiser steps."""
    peak_learning_rate: float = Field(gt=0)
    """AdamW learning rate after the warm-up, which then falls along a half cosine."""
    pictures_per_step: int = Field(ge=1)
    """Pictures in one step, with the agent on any free cell."""


class WalkStage(Settings):
    """Fine-tuning of the whole model on walks, with an optimiser of its own."""

    num_steps: int = Field(ge=1)
    """Optimiser steps."""
    peak_learning_rate: float = Field(gt=0)
    """AdamW learning rate after the warm-up, which then falls along a half cosine."""
    episodes_per_step: int = Field(default=16, ge=1)
    """Whole episodes in one step, with equally many turns."""
    stumble_rate: float = Field(default=0.0, ge=0, lt=1)
    """Share of turns at which the walker takes a random direction, which is not imitated."""
    look_back_rate: float = Field(default=0.0, ge=0, le=1)
    """Share of corners before which the walker steps back and returns; the model learns the habit."""
    anywhere_rate: float = Field(default=0.0, ge=0, le=1)
    """Share of walks that start on any free cell: shorter, and their stop can't be told from the turn's number."""
    max_turns: int = Field(default=15, ge=2)
    """A walk is cut here. Walks that are cut show no stop."""
    decision_loss_weight: float = Field(default=0.0, ge=0)
    """Weight of an auxiliary loss: the hidden state before a reply names the whole action."""


class BaseModelSettings(Settings):
    """How the tiny base model is built and fine-tuned on oracle walks."""

    output_dir: str
    """Folder that receives the model, its processor and its card."""
    maze: MazeSettings
    eval_manifest: str
    """Evaluation manifest; its mazes are kept out of the training walks."""
    seed: int = 0
    """Seeds the weights and the order of the walks."""
    sight: SightStage
    """The first stage."""
    walks: tuple[WalkStage, ...]
    """The stages after it, one after the other."""
    max_turns: int = Field(default=15, ge=2)
    """Turn limit of the evaluation; only mazes that an oracle solves within it are walked."""
