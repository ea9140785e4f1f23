"""Settings of the flows about models that serve: evaluate, promote, roll back, compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from flows.parts import InParts, PlatformOf
from rl.settings import DataSettings
from tasks.evidence.settings import CompareSettings
from tasks.records import ServedModel
from tasks.release.settings import ChampionSettings, EvaluationSettings, PlaySettings
from tasks.settings import TrackingSettings


class EvaluateSettings(InParts):
    """Everything the evaluate flow needs."""

    knob_paths: ClassVar[Mapping[str, str]] = {"model_id": "model_id"}

    url: str
    """Address of the endpoint, before ``/v1``."""
    model_id: str
    """What to ask for: a base model, ``<base>:<adapter>`` or ``<base>:champion``."""
    data: DataSettings
    play: PlaySettings
    tracking: TrackingSettings

    @property
    def model(self) -> ServedModel:
        """Whom to ask, and where."""
        return ServedModel(url=self.url, model_id=self.model_id)

    @property
    def evaluation(self) -> EvaluationSettings:
        """Which mazes are played, and how."""
        return EvaluationSettings(data=self.data, play=self.play)


class PromoteSettings(InParts, ChampionSettings):
    """Everything the promote flow needs."""

    knob_paths: ClassVar[Mapping[str, str]] = {"adapter_name": "adapter_name"}

    adapter_name: str
    """Name of a registered adapter, without the base model's; an unknown one is answered with those that there are."""


class RollbackSettings(InParts, ChampionSettings):
    """Everything the rollback flow needs."""


class CompareFlowSettings(InParts, CompareSettings):
    """Everything the compare flow needs."""

    knob_paths: ClassVar[Mapping[str, str]] = {"runs": "runs"}


EvaluatePlatform = Annotated[dict[str, Any], PlatformOf(EvaluateSettings)]
PromotePlatform = Annotated[dict[str, Any], PlatformOf(PromoteSettings)]
ComparePlatform = Annotated[dict[str, Any], PlatformOf(CompareFlowSettings)]
RollbackPlatform = Annotated[dict[str, Any], PlatformOf(RollbackSettings)]
