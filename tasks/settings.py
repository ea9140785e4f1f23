"""What all settings are, and the settings that more than one stage needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tasks.addresses import refuse_logins

UNITS = {"s": "s", "gb": "GB", "gib": "GiB", "px": "px", "h": "h"}
"""Last part of a name -> the unit that it stands for."""
WORDS = {"max": "most", "num": "number of", "timeout": "time limit", "eval": "evaluation", "usd": "USD", "url": "URL"}
"""Parts of names that are no plain words."""


def plain_title(name: str, of: object = None) -> str:
    """A field's name in plain words: ``timeout_s`` -> ``Time limit (s)``."""
    *parts, last = name.split("_")
    unit = f" ({UNITS[last]})" if parts and last in UNITS else ""
    words = " ".join(WORDS.get(part, part) for part in (parts if unit else [*parts, last]))
    return words[:1].upper() + words[1:] + unit


class Settings(BaseModel):
    """Frozen; unknown keys are refused, and every text, however deep, that is an address with a login in it."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        field_title_generator=plain_title,
        hide_input_in_errors=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _addresses_hold_no_login(cls, document: Any) -> Any:
        refuse_logins(document)
        return document


class JobSettings(Settings):
    """How a Ray job is submitted and followed."""

    project_dir: str
    """Folder of this project on the cluster's nodes."""
    python: str
    """Interpreter of the training environment on the cluster's nodes."""
    stall_timeout_s: float = Field(default=1800.0, gt=0)
    """A job that tells of no progress for so long is stopped, in seconds. A step, an evaluation, a checkpoint is
    progress; what it prints is none."""
    on_stall: Literal["resubmit", "fail"] = "resubmit"
    """Whether a training that stalled is followed by another job as one that died is, or ends the run."""
    max_training_attempts: int = Field(default=1, ge=1)
    """Training jobs that one run of the flow submits at most: after one that died the next goes on from the newest
    whole checkpoint, unless its cause would end that one, too. With 1 none follows."""
    reconnect_s: float = Field(default=5.0, gt=0)
    """Pause before the log is taken up again after the connection broke, in seconds."""


class TrackingSettings(Settings):
    """Where metrics and artifacts go."""

    tracking_uri: str
    """Address of the MLflow server, http or https. SageMaker's managed one has an ARN in place of an address and needs
    requests signed by a plugin (sagemaker-mlflow) that is not part of this project."""
    experiment: str = "maze-retrain"
    """MLflow experiment; parent run = pipeline run, child runs = attempts at training."""
    outbox_dir: str
    """Folder on the orchestrator's disk for what MLflow and Prefect could not be told yet."""
    logs_dir: str
    """Folder on the orchestrator's disk; what a run's jobs print is kept in ``<logs_dir>/<run_name>/<job>.log``."""
    flush_timeout_s: float = Field(default=60.0, ge=0)
    """How long the end of a run waits for MLflow and Prefect to take what is left, in seconds."""

    @field_validator("tracking_uri")
    @classmethod
    def _is_an_address(cls, uri: str) -> str:
        if uri.startswith("arn:"):
            raise ValueError(
                f"{uri!r} names SageMaker's managed MLflow, which is not supported: its requests must be signed, and "
                "its artifacts lie where only its plugin (sagemaker-mlflow) finds them; give the address of an MLflow "
                "server, docker/mlflow.yaml starts one"
            )
        return uri


def dotted(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names: ``{"a": {"b": 1}}`` -> ``{"a.b": 1}``."""
    result: dict[str, Any] = {}
    for key, value in document.items():
        name = f"{prefix}{key}"
        result |= dotted(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return result
