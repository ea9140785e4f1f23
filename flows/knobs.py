"""What a person who starts a flow is asked for: the first fields of its form, bare names on the command line."""

from __future__ import annotations

from pydantic import Field

from tasks.names import RunName, RunNameOrEmpty
from tasks.settings import Settings


class Knobs(Settings):
    """A retraining run, in eleven answers."""

    run_name: RunNameOrEmpty = ""
    """Names the run everywhere, also in place of Prefect's own Run Name above: lowercase letters, digits, dashes. Empty
    makes a new name; an old run's name goes on with that run."""
    max_steps: int = Field(ge=1, title="Steps")
    """Training steps, 1 or more. In each, the agent plays mazes and learns from them once."""
    mazes_per_step: int = Field(ge=1)
    """Different mazes played in a step. A multiple of the optimiser's batch (platform: train.grpo.mini_batch_mazes)."""
    rollouts_per_maze: int = Field(ge=2)
    """How often each of these mazes is played (2 or more): attempts at one maze are compared with each other."""
    learning_rate: float = Field(gt=0, le=1)
    """Largest step of the optimiser (AdamW), above 0. Too large, and the agent forgets how to answer."""
    temperature: float = Field(gt=0, le=10)
    """Randomness of play in training, above 0 (1 plays as the model thinks). Evaluation is always greedy."""
    eval_interval: int = Field(ge=1, title="Evaluation interval (steps)")
    """The 64 fixed mazes are played before training, every so many steps, and after the last one."""
    export_interval: int = Field(ge=1, title="Export interval (steps)")
    """Checkpoint and adapter are saved every so many steps, and after the last one. A step can be served if it is
    evaluated too; the last one always is."""
    seed: int = Field(ge=0)
    """Another seed has other luck, and the mazes in another order. Which mazes they are follows from the run's name."""
    promote: bool
    """Make the new adapter the champion if it is proven and better. Off: it is judged and reported only."""
    note: str = Field(default="", max_length=500)
    """Why this run, in your words: shown in MLflow and in the report. Up to 500 characters."""


class CleanupKnobs(Settings):
    """Whose remains, and whether they go."""

    run_name: RunName
    """The run whose remains are looked for."""
    dry_run: bool = True
    """On: only say what would be removed. Off: remove it."""


class ClusterUpKnobs(Settings):
    """Whose cluster it is."""

    run_name: RunName = "by-hand"
    """Label of what is created; clean-up asks for it."""


class EvaluateKnobs(Settings):
    """Who plays the 64 mazes."""

    model_id: str
    """What the endpoint is asked for: a base model, <base>:<adapter> or <base>:champion."""


class PromoteKnobs(Settings):
    """Who becomes champion."""

    adapter_name: str
    """Name of a registered adapter, without the base model's; an unknown one is answered with those that there are."""


class CompareKnobs(Settings):
    """Which runs are held against each other."""

    runs: list[RunName] = Field(min_length=2, max_length=20)
    """Names of two runs or more, as MLflow lists them."""
