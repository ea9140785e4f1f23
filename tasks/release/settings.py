"""Settings of the way from the best step to the users: endpoint, evaluation, proof, gate."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rl.maze.score import Conditions
from rl.settings import DataSettings
from serving.settings import ServerSettings
from tasks.settings import Settings, TrackingSettings

BESIDE_THE_ENGINE = {"app_name", "base_model_id", "adapters_uri", "max_cpu_loras", "listen"}
"""Settings of a server that leave its answers as they are."""


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
    server: ServerSettings | None = None
    """How the endpoint was deployed, where this run knows it."""
    software: str = ""
    """Digest of the image or lock that the endpoint runs in; empty where nobody says."""

    @property
    def conditions(self) -> Conditions:
        """What may turn a greedy answer by rounding."""
        engine = {} if self.server is None else self.server.model_dump(mode="json", exclude=BESIDE_THE_ENGINE)
        return Conditions(num_concurrent=self.play.num_concurrent, engine=engine, software=self.software)


class JudgeSettings(Settings):
    """The mazes that decide about a candidate."""

    num_mazes: int = Field(ge=1)
    """Drawn anew for each run. With 128 a gain of 11 points over the base is found 9 times in 10, with 256 one of 7
    (docs/evaluation.md)."""


class JudgeMazesSettings(Settings):
    """How many, and around which other mazes they are drawn."""

    data: DataSettings
    num_mazes: int


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
    """When a proven candidate replaces the champion, by the judge set."""

    max_p_value: float = Field(default=0.05, gt=0, le=1)
    """Exact McNemar test against the base model: more won than lost, and at most this."""
    over_champion: Literal["superior", "not_inferior"] = "superior"
    """What the champion is replaced for. ``superior``: the same test says so. ``not_inferior``: more won than lost, and
    the interval of the difference stays above ``-max_inferiority``; over many cycles the champion may get worse."""
    max_p_value_over_champion: float = Field(default=0.05, gt=0, lt=1)
    """Level of the test against the champion, or of the interval."""
    max_inferiority: float = Field(default=0.05, gt=0, lt=1)
    """Share of mazes that a candidate may be worse by, as far as the interval can tell."""
    promote: bool = True
    """Whether the better one is promoted; where it is not, it is judged and reported all the same."""
