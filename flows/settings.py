"""One settings object per flow, one field per stage. Values live in prefect.yaml."""

from __future__ import annotations

from pydantic import Field, model_validator

from rl.settings import BaseModelSettings, Settings, TrainSettings
from tasks.settings import ClusterSettings, JobSettings, ReportSettings, TrackingSettings


class RetrainSettings(Settings):
    """Everything the retrain flow needs."""

    run_name: str = Field(default="", pattern=r"^([a-z0-9][a-z0-9-]{0,62})?$")
    """Names the run everywhere; empty takes the profile and the start time. An old name goes on with that run."""
    cluster: ClusterSettings
    job: JobSettings
    train: TrainSettings
    tracking: TrackingSettings
    report: ReportSettings

    @model_validator(mode="after")
    def _cluster_fits(self) -> RetrainSettings:
        train = self.train
        policy = train.num_policy_nodes * train.num_gpus_per_node
        wanted = policy if train.engine.colocate else policy + train.engine.num_engines
        if self.cluster.num_gpus != wanted:
            raise ValueError(
                f"cluster.num_gpus is {self.cluster.num_gpus:g}, train needs {wanted} (policy {policy}"
                + ("" if train.engine.colocate else f" + engines {train.engine.num_engines}")
                + ")"
            )
        return self


class BaseModelFlowSettings(Settings):
    """Everything the base-model flow needs."""

    cluster: ClusterSettings
    job: JobSettings
    tracking: TrackingSettings
    model: BaseModelSettings
