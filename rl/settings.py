"""Settings of the reinforcement-learning half: frozen, strict, documented by attribute docstrings.

Importing this costs pydantic and nothing else; values live in prefect.yaml.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class MazeSettings(Settings):
    """Which maze environment, and how large its mazes are."""

    env_id: str = "maze_2d"
    """Gymnasium id: the project's own ``maze_2d``, or for example ``maze_2d/easy`` where VisGym is installed."""
    height: int = Field(7, ge=5, le=21)
    """Rows of the grid, walls included; odd."""
    width: int = Field(9, ge=5, le=21)
    """Columns of the grid, walls included; odd."""
    cell_px: int = Field(8, ge=8, le=64)
    """Side of one cell in the picture, in pixels (VisGym draws 25)."""


class BaseModelSettings(Settings):
    """How the tiny base model is built and fine-tuned on oracle walks."""

    output_dir: str
    """Folder that receives the model, its processor and its card."""
    maze: MazeSettings
    manifest_path: str
    """Evaluation manifest; its mazes are kept out of the training walks."""
    seed: int = 0
    """Seeds the weights and the order of the walks."""
    num_steps: int = Field(600, ge=1)
    """Optimiser steps."""
    episodes_per_step: int = Field(16, ge=1)
    """Whole oracle episodes in one step, all of equal length."""
    peak_learning_rate: float = Field(2e-3, gt=0)
    """AdamW learning rate after the warm-up, which then falls along a half cosine."""
    max_turns: int = Field(15, ge=2)
    """Only mazes that an oracle solves within this many turns are walked."""
    eval_interval: int = Field(100, ge=0)
    """Play the evaluation mazes greedily every so many steps; 0 plays them only at the end."""
