"""Settings of the way from the best step to the users: endpoint, evaluation, proof, gate."""

from __future__ import annotations

from pydantic import Field

from rl.settings import DataSettings
from serving.settings import ServerSettings
from tasks.settings import Settings, TrackingSettings


class ServeSettings(Settings):
    """The serving cluster and the application on it."""

    dashboard: str
    """Address of the serving cluster's Ray dashboard, whose REST API takes the application."""
    url: str
    """Address of the endpoint for clients, before ``/v1``."""
    timeout_s: float = Field(default=1800.0, gt=0)
    """How long a deployment may take, in seconds."""
    server: ServerSettings


class PlaySettings(Settings):
    """How the evaluation mazes are played through an endpoint."""

    max_reply_tokens: int = Field(default=8, ge=4)
    """Tokens of one reply; as in training."""
    num_concurrent: int = Field(default=16, ge=1)
    """Mazes played at a time."""


class EvaluationSettings(Settings):
    """Which mazes are played, and how."""

    data: DataSettings
    play: PlaySettings


class ChampionSettings(Settings):
    """Whose champion it is, and who records that."""

    server: ServerSettings
    tracking: TrackingSettings


class ProofSettings(Settings):
    """When an endpoint is taken to serve the adapter that was trained."""

    num_probes: int = Field(default=8, ge=1)
    """Probe conversations, answered by the training side and by the endpoint."""
    max_logprob_difference: float = Field(gt=0)
    """Largest difference of a generated token's log-probability between both sides."""
    min_agreement_p_value: float = Field(default=0.01, gt=0, lt=1)
    """The endpoint's 64 mazes contradict the training-time evaluation when an exact McNemar test is below this."""


class GateSettings(Settings):
    """When a proven candidate replaces the champion."""

    min_margin_over_base: int = Field(default=5, ge=0)
    """Mazes won minus mazes lost against the base model."""
    max_p_value: float = Field(default=0.05, gt=0, le=1)
    """Exact McNemar test against the base model."""
    min_margin_over_champion: int = Field(default=1, ge=0)
    """Mazes won minus mazes lost against the current champion."""
    promote: bool = True
    """Whether the better one is promoted; where it is not, it is judged and reported all the same."""
