"""Settings of clean-up: what goes, and where a run has left its things."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from serving.settings import ServerSettings
from tasks.cluster.settings import ClusterSettings, HostingSettings
from tasks.image.settings import ImageSettings
from tasks.settings import JobSettings, Settings, TrackingSettings

Part = Literal["jobs", "checkpoints", "serving", "training", "identity", "adapters", "images"]


class CleanupSettings(Settings):
    """What is taken away, and what the rest costs."""

    remove: tuple[Part, ...]
    """Parts that go, in this fixed order whatever the order here: jobs, checkpoints, serving, training, identity,
    adapters, images. The champion and the one before it stay, and so do the images that pods run."""
    keep_images: int = Field(default=3, ge=1)
    """Images of each repository that stay, the newest ones."""
    usd_per_gb_month_s3: float = Field(default=0.023, ge=0)
    """Price of the object store, in US dollars per GB and month."""
    usd_per_gb_month_ecr: float = Field(default=0.10, ge=0)
    """Price of the image registry, in US dollars per GB and month."""


class CleanupScope(Settings):
    """Where a run's things are, and what becomes of them."""

    cleanup: CleanupSettings
    ended_flow_run: str = ""
    """The flow run that is cleaned up after: what another one uses stays. Empty: after all flow runs of the run."""
    image: ImageSettings
    hosting: HostingSettings
    cluster: ClusterSettings
    job: JobSettings
    shared_dir: str
    """Folder of all runs, as the cluster's nodes see it."""
    server: ServerSettings
    tracking: TrackingSettings
