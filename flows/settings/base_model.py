"""Settings of the base-model flow."""

from __future__ import annotations

from typing import Annotated, Any

from flows.parts import InParts, PlatformOf
from rl.base_model.settings import BaseModelSettings
from tasks.cluster.settings import ClusterSettings
from tasks.settings import JobSettings, TrackingSettings


class BaseModelFlowSettings(InParts):
    """Everything the base-model flow needs."""

    cluster: ClusterSettings
    job: JobSettings
    tracking: TrackingSettings
    model: BaseModelSettings


BaseModelPlatform = Annotated[dict[str, Any], PlatformOf(BaseModelFlowSettings)]
