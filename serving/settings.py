"""Settings of the serving half: frozen, strict, documented by attribute docstrings. Importing costs pydantic only."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

REGISTERED_MODEL = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*"
S3_BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
S3_SEGMENT = r"[A-Za-z0-9!_.*'()-]+"


class DoorSettings(BaseModel):
    """What the endpoint takes from anybody who can reach it. An API key is no setting: MAZE_ENDPOINT_API_KEY."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    max_image_pixels: int = Field(ge=1)
    """Largest picture, width times height; read from its header, before it is decoded."""
    max_image_mb: float = Field(gt=0)
    """Largest picture as it is sent, in millions of bytes after base64."""
    max_request_mb: float = Field(gt=0)
    """Largest request, all its pictures in base64 together, in millions of bytes."""
    allowed_media_domains: tuple[str, ...] = ()
    """Hosts that pictures are fetched from for a client; none: pictures come with the request."""


class ServerSettings(BaseModel):
    """The Ray Serve LLM application: one base model, adapters from S3."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    app_name: str = "llm"
    """Name of the Serve application."""
    base_model_id: str
    """What clients call the base model; adapters are ``<base_model_id>:<adapter>``, so it holds no colon."""
    model_source: str
    """Folder or s3:// URI of the base model, as the replicas see it."""
    adapters_uri: str
    """Where adapters of this base lie. Servers look for an adapter by its name alone, so the base is in this path."""
    device: Literal["cpu", "cuda"]
    """Where the engine runs."""
    accelerator_type: str | None = None
    """Ray's name of the GPU; none on a CPU, and none where any GPU of the cluster will do."""
    dtype: Literal["float32", "bfloat16"]
    """Number format of the weights."""
    max_model_len: int = Field(ge=256)
    """Longest episode, in tokens."""
    max_images: int = Field(ge=1)
    """Pictures in one conversation: one a turn."""
    door: DoorSettings
    max_num_seqs: int = Field(default=64, ge=1)
    """Requests generated for at a time."""
    max_lora_rank: int = Field(ge=1)
    """Largest adapter rank that is loaded."""
    max_loras: int = Field(default=4, ge=1)
    """Adapters in one batch."""
    max_cpu_loras: int = Field(default=16, ge=1)
    """Adapters that a replica keeps loaded."""
    num_replicas: int = Field(default=1, ge=1)
    """Engine replicas. Updating the application stops a replica before its successor runs: two keep it answering."""
    engine_kwargs: dict[str, Any] = {}
    """Further vLLM engine arguments, handed on as they are."""
    env: dict[str, str] = {}
    """Environment of the application's processes. Credentials come from the usual AWS chain, never from here."""
    listen: str = Field(default="127.0.0.1:8000", pattern=r"^[^:\s]+:\d{1,5}$")
    """Host and port that the endpoint listens on; one text, because deployments are filled in with texts."""

    @field_validator("base_model_id")
    @classmethod
    def _is_a_registered_model_s_name(cls, name: str) -> str:
        if not re.fullmatch(REGISTERED_MODEL, name):
            raise ValueError(
                f"{name!r} names the model in MLflow's registry too, which takes no '/' and no ':' and whose search no "
                "quotes (mlflow.utils.validation); take letters, digits, '_', '-' and '.', such as "
                f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name).strip('-.') or 'my-model'!r}: where it lies is model_source"
            )
        return name

    @field_validator("adapters_uri")
    @classmethod
    def _is_a_place_in_s3(cls, uri: str) -> str:
        if not re.fullmatch(f"s3://{S3_BUCKET}(/{S3_SEGMENT})+", uri) or re.search(r"/\.{1,2}(/|$)", uri):
            raise ValueError(
                f"{uri!r} is no s3://<bucket>/<folder>: a bucket has 3 to 63 lowercase letters, digits, dots and "
                "dashes, a key S3's safe characters (S3 User Guide, naming rules), and no part is empty, '.' or '..'"
            )
        return uri

    @model_validator(mode="after")
    def _one_device(self) -> ServerSettings:
        if self.device == "cpu" and self.accelerator_type is not None:
            raise ValueError(
                f"accelerator_type is {self.accelerator_type!r} with device cpu; leave it out, or set device to cuda"
            )
        return self
