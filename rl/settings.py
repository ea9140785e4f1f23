"""Settings of the reinforcement-learning half: frozen, strict, documented by attribute docstrings.

Importing this costs pydantic and nothing else; values live in prefect.yaml.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Settings(BaseModel):
    """Frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


ENV_ID, VISGYM_ENV_ID = "maze_2d", "maze_2d/easy"
VISGYM_CELL_PX = 25
FIRST_TRAIN_SEED, NUM_TRAIN_SEEDS = 100_000, 9_000_000
"""Where runs draw their training mazes: above the seeds of the evaluation, below those of judging."""


class MazeSettings(Settings):
    """Which maze environment, and how large its mazes are."""

    env_id: Literal["maze_2d", "maze_2d/easy"] = ENV_ID
    """Gymnasium id: the project's own ``maze_2d``, or VisGym's ``maze_2d/easy`` (its mazes need not be installed)."""
    height: int = Field(default=7, ge=5, le=21)
    """Rows of the grid, walls included; odd."""
    width: int = Field(default=9, ge=5, le=21)
    """Columns of the grid, walls included; odd."""
    cell_px: int = Field(default=8, ge=8, le=64)
    """Side of one cell in the picture, in pixels. VisGym's mazes are drawn with VISGYM_CELL_PX and no other."""

    def env_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of ``gymnasium.make``: VisGym's ids fix the cell size themselves."""
        size = {"maze_height": self.height, "maze_width": self.width}
        return {**size, "cell_px": self.cell_px} if self.env_id == ENV_ID else size

    @model_validator(mode="after")
    def _is_drawn_so(self) -> MazeSettings:
        if self.env_id == VISGYM_ENV_ID and self.cell_px != VISGYM_CELL_PX:
            raise ValueError(f"cell_px is {self.cell_px}, VisGym draws its cells with {VISGYM_CELL_PX}: set that")
        return self


class DataSettings(Settings):
    """Which mazes are trained on and which are held out."""

    maze: MazeSettings
    eval_manifest: str
    """Path of the evaluation manifest, relative to the project."""
    eval_sha256: str
    """Digest that the manifest must have; results on another set cannot be compared."""
    num_train_mazes: int = Field(ge=1)
    """Distinct training mazes; none is an evaluation maze, none may ever judge."""
    first_train_seed: int | None = Field(default=None, ge=0)
    """Training mazes take seeds upward from here. Empty: the run's name says where, so that each run has its own."""
    max_turns: int = Field(default=15, ge=2)
    """Turns per episode, the stop included."""
    parsing: Literal["strict", "tolerant"] = "tolerant"
    """How replies are read: the whole reply one tuple, or the first tuple anywhere in it."""

    def of_run(self, run_name: str) -> DataSettings:
        """The same, with the seed from which this run draws: the same name gives the same mazes."""
        if self.first_train_seed is not None:
            return self
        first_seed = seed_of(run_name, FIRST_TRAIN_SEED, NUM_TRAIN_SEEDS)
        return self.model_copy(update={"first_train_seed": first_seed})


def seed_of(run_name: str, first_seed: int, num_seeds: int) -> int:
    """The name's own seed among ``num_seeds`` from ``first_seed`` on."""
    return first_seed + int(hashlib.sha256(run_name.encode()).hexdigest(), 16) % num_seeds


def differences(before: Any, now: Any, name: str = "") -> dict[str, tuple[Any, Any]]:
    """Dotted name -> (before, now) for whatever differs between two documents."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return {} if before == now else {name: (before, now)}
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted(before.keys() | now.keys()):
        found |= differences(before.get(key), now.get(key), f"{name}.{key}".lstrip("."))
    return found
