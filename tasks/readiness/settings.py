"""Settings of the checks before a job is submitted, and what the run will need."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rl.readiness.settings import NodeReadiness
from tasks.cluster.settings import HostingSettings
from tasks.settings import Settings


class ReadinessSettings(Settings):
    """The checks before a job is submitted."""

    timeout_s: float = Field(gt=0)
    """Time for all checks that the orchestrator makes, at once and together, in seconds."""
    nodes: NodeReadiness = NodeReadiness()
    """The checks that a job on the training cluster makes."""


class RunNeeds(Settings):
    """What a run will need, hours from now too, as far as somebody can be asked for it now.

    Put together where all settings are (flows/settings/); the later stages will ask the same servers.
    """

    hosting: HostingSettings
    """Who keeps the clusters, and looks at them too."""
    serve_dashboard: str
    """Where the application will be deployed."""
    serve_listen: str
    """Host and port that it will listen on."""
    adapters_uri: str
    """Where the adapter will be published."""
    tracking_uri: str
    """Where the run will log."""
    experiment: str
    """In MLflow."""
    device: Literal["cuda", "cpu"]
    num_gpus: int
    """For policy and engines together."""
    num_policy_nodes: int
    num_gpus_per_node: int
    env: dict[str, str]
    """Environment of the engine processes."""
    shared_dir: str
    min_free_disk_gb: float
    model_path: str
