"""Settings of the stages around training: frozen, strict, documented by attribute docstrings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


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
