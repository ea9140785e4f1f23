"""Who is champion: aliases in MLflow's model registry, and the S3 object by which the endpoint resolves the name.

MLflow is the record, the object follows it: a step that was interrupted is completed by doing it again.
"""

from __future__ import annotations

import json
from typing import Any

import boto3
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from serving.app import champion_uri
from tasks.errors import NoSuchAdapter
from tasks.records import ChampionChange, PublishedAdapter
from tasks.release.settings import ChampionSettings

CHAMPION, PREVIOUS = "champion", "previous"


class ChampionRegistry:
    """The adapters of one base model as versions of one registered model."""

    def __init__(self, tracking_uri: str, registered_model: str, champion_uri: str, s3: Any = None) -> None:
        self._client = MlflowClient(tracking_uri)
        self._name = registered_model
        self._bucket, _, self._key = champion_uri.removeprefix("s3://").partition("/")
        self._s3 = s3 or boto3.client("s3")

    def champion(self) -> str | None:
        """Name of the adapter that is champion."""
        return _adapter_name(self._version_with(CHAMPION))

    def previous(self) -> str | None:
        """Name of the adapter that was champion before."""
        return _adapter_name(self._version_with(PREVIOUS))

    def register(self, adapter: PublishedAdapter, mlflow_run_id: str, solved: int) -> None:
        """Make the adapter a version of the registered model; a second call finds the first."""
        try:
            self._client.create_registered_model(self._name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        if self._version_of(adapter.name) is None:
            tags = {
                "adapter": adapter.name,
                "sha256": adapter.sha256,
                "step": str(adapter.step),
                "model_id": adapter.model_id,
                "solved": str(solved),
            }
            self._client.create_model_version(self._name, adapter.uri, run_id=mlflow_run_id, tags=tags)

    def require(self, adapter_name: str) -> ModelVersion:
        """The version of this adapter; raises NoSuchAdapter with the names that there are."""
        version = self._version_of(adapter_name)
        if version is None:
            known = ", ".join(self._names()) or "none"
            raise NoSuchAdapter(f"registered model {self._name} has no adapter {adapter_name!r}; it has {known}")
        return version

    def promote(self, adapter_name: str) -> ChampionChange:
        """Make a registered adapter the champion and the former one ``previous``. Raises NoSuchAdapter."""
        version, former = self.require(adapter_name), self._version_with(CHAMPION)
        if former is None or former.version != version.version:
            if former is not None:
                self._client.set_registered_model_alias(self._name, PREVIOUS, former.version)
            self._client.set_registered_model_alias(self._name, CHAMPION, version.version)
        document = json.dumps({"adapter_name": adapter_name, "sha256": version.tags["sha256"]}).encode()
        self._s3.put_object(Bucket=self._bucket, Key=self._key, Body=document)
        return ChampionChange(champion=adapter_name, previous=_adapter_name(self._version_with(PREVIOUS)))

    def roll_back(self) -> ChampionChange:
        """Make the former champion champion again. Raises NoSuchAdapter when there was none."""
        previous = self.previous()
        if previous is None:
            raise NoSuchAdapter(f"registered model {self._name} has no previous champion to go back to")
        return self.promote(previous)

    def _version_with(self, alias: str) -> ModelVersion | None:
        try:
            return self._client.get_model_version_by_alias(self._name, alias)
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return None
            raise

    def _version_of(self, adapter_name: str) -> ModelVersion | None:
        found = [v for v in self._versions() if v.tags.get("adapter") == adapter_name]
        return found[0] if found else None

    def _versions(self) -> list[ModelVersion]:
        return list(self._client.search_model_versions(f"name='{self._name}'"))

    def _names(self) -> list[str]:
        return sorted(v.tags.get("adapter", v.version) for v in self._versions())


def registry_of(settings: ChampionSettings) -> ChampionRegistry:
    """The registered model of this base."""
    server = settings.server
    return ChampionRegistry(settings.tracking.tracking_uri, f"{server.base_model_id}-adapters", champion_uri(server))


def _adapter_name(version: ModelVersion | None) -> str | None:
    return None if version is None else version.tags["adapter"]
