"""Settings of the plan of a run on the cluster."""

from __future__ import annotations

from pydantic import Field

from rl.grpo.settings import TrainSettings
from serving.settings import ServerSettings
from tasks.cluster.settings import MadeClusters
from tasks.image.settings import ImageSettings
from tasks.settings import Settings


class BaseModelFacts(Settings):
    """Sizes of the model that is trained; the plan has no access to its files."""

    num_params: int = Field(gt=0)
    """Parameters."""
    num_layers: int = Field(gt=0)
    """Decoder layers of the language model."""
    hidden_size: int = Field(gt=0)
    kv_size: int = Field(gt=0)
    """Output width of the key and the value projection."""
    intermediate_size: int = Field(gt=0)


class PlanSettings(Settings):
    """What the plan reckons with. Durations are expectations: nobody has measured them on this cluster."""

    python: str
    """Interpreter of a training environment on this machine: it resolves SkyRL's configuration."""
    output_dir: str
    """Folder of plan.json, plan.md, SkyRL's configuration and the manifests."""
    model: BaseModelFacts
    expected_start_s: float = Field(gt=0)
    """From the job's submission to its first rollout, in seconds."""
    expected_step_s: float = Field(gt=0)
    """One GRPO step, in seconds."""
    expected_evaluation_s: float = Field(gt=0)
    """One evaluation of the 64 mazes, in seconds."""
    expected_serving_s: float = Field(gt=0)
    """From the end of training to the verdict, in seconds."""
    usd_per_gb_month_shared: float = Field(ge=0)
    """Price of the shared file system, in US dollars per GB and month."""


class PlannedRun(Settings):
    """The run that is planned, as far as a plan speaks of it."""

    image: ImageSettings
    hosting: MadeClusters
    train: TrainSettings
    server: ServerSettings
    experiment: str
    """In MLflow."""
