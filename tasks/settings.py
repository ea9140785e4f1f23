"""Settings of the stages around training: frozen, strict, documented by attribute docstrings."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from rl.ready_settings import NodeReadiness
from serving.settings import ServerSettings


class Settings(BaseModel):
    """Frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ClusterSettings(Settings):
    """The Ray cluster that trains."""

    jobs_address: str
    """Address of the Ray Jobs API, for example ``http://127.0.0.1:8265``."""
    num_gpus: float = Field(gt=0)
    """GPUs (or logical GPUs) that must be free before a job is submitted."""
    timeout_s: float = Field(default=600.0, gt=0)
    """How long to wait for them, in seconds."""
    poll_s: float = Field(default=5.0, gt=0)
    """Pause between two looks, in seconds."""


class KeptClusters(Settings):
    """Ray clusters that others keep: they are found where the settings say, never made and never removed."""

    kind: Literal["kept"] = "kept"


class ReadinessSettings(Settings):
    """The checks before a job is submitted."""

    timeout_s: float = Field(gt=0)
    """Time for one check, in seconds."""
    nodes: NodeReadiness = NodeReadiness()
    """The checks that a job on the training cluster makes."""


class JobSettings(Settings):
    """How a Ray job is submitted and followed."""

    project_dir: str
    """Folder of this project on the cluster's nodes."""
    python: str
    """Interpreter of the training environment on the cluster's nodes."""
    stall_timeout_s: float = Field(default=1800.0, gt=0)
    """A job whose log stays silent for so long is declared lost and stopped, in seconds."""
    reconnect_s: float = Field(default=5.0, gt=0)
    """Pause before the log is taken up again after the connection broke, in seconds."""


class TrackingSettings(Settings):
    """Where metrics and artifacts go."""

    tracking_uri: str
    """Address of the MLflow server."""
    experiment: str = "maze-retrain"
    """MLflow experiment; parent run = pipeline run, child run = training job."""


class ReportSettings(Settings):
    """What a run leaves behind for its reader."""

    reports_dir: str
    """Folder of ``<run_name>.json``, ``latest.json`` and the pictures."""
    profile: str
    """Name of the parameter set, shown in reports: local, local-long, hyperpod."""


class GateSettings(Settings):
    """When a proven candidate replaces the champion."""

    min_margin_over_base: int = Field(default=5, ge=0)
    """Mazes won minus mazes lost against the base model."""
    max_p_value: float = Field(default=0.05, gt=0, le=1)
    """Exact McNemar test against the base model."""
    min_margin_over_champion: int = Field(default=1, ge=0)
    """Mazes won minus mazes lost against the current champion."""


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


class ProofSettings(Settings):
    """When an endpoint is taken to serve the adapter that was trained."""

    num_probes: int = Field(default=8, ge=1)
    """Probe conversations, answered by the training side and by the endpoint."""
    max_logprob_difference: float = Field(gt=0)
    """Largest difference of a generated token's log-probability between both sides."""
    min_agreement_p_value: float = Field(default=0.01, gt=0, lt=1)
    """The endpoint's 64 mazes contradict the training-time evaluation when an exact McNemar test is below this."""
