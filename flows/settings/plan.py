"""Settings of the plan flow."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import model_validator

from flows.parts import PlatformOf
from flows.settings.retrain import RetrainSettings
from tasks.cluster.ray_settings import RayOnKubernetes
from tasks.cluster.settings import KeptClusters
from tasks.plan.settings import PlannedRun, PlanSettings


class PlanFlowSettings(RetrainSettings):
    """Everything the plan flow needs: a run's settings, and what the plan reckons with."""

    plan: PlanSettings

    @property
    def planned(self) -> PlannedRun:
        """What the plan speaks of."""
        assert not isinstance(self.hosting, KeptClusters)
        return PlannedRun(
            image=self.image,
            hosting=self.hosting,
            train=self.train,
            server=self.serve.server,
            experiment=self.tracking.experiment,
        )

    @model_validator(mode="after")
    def _has_a_cluster_to_plan(self) -> PlanFlowSettings:
        if not isinstance(self.hosting, RayOnKubernetes):
            raise ValueError("hosting.kind is kept: there is nothing to plan; plan a run on hyperpod or kuberay")
        return self


PlanPlatform = Annotated[dict[str, Any], PlatformOf(PlanFlowSettings)]
