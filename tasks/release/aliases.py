"""Who is champion: the object in S3 by which the endpoint resolves the name, and aliases in MLflow that follow it.

The object is written first and in one piece (serving/champion.py): it is the intention and the change. Whoever comes
next, be it the same order again, puts the aliases right.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from serving.app import champion_uri
from serving.champion import Champion, ChampionMoved, ChampionObject, Seen
from serving.store import s3_client
from tasks.clients.mlflow_client import mlflow_client
from tasks.errors import NoSuchAdapter
from tasks.records import ChampionChange, PublishedAdapter
from tasks.release.settings import ChampionSettings

CHAMPION, PREVIOUS = "champion", "previous"
_LOOKS = 5
"""How often the aliases are put right when the champion changes under the hand."""


class ChampionRegistry:
    """The adapters of one base model as versions of one registered model."""

    def __init__(self, tracking_uri: str, registered_model: str, champion_uri: str, s3: Any = None) -> None:
        self._client = mlflow_client(tracking_uri)
        self._name = registered_model
        self._object = ChampionObject(s3 or s3_client(), champion_uri)

    @property
    def name(self) -> str:
        """Of the registered model."""
        return self._name

    def champion(self) -> str | None:
        """Name of the adapter that is champion."""
        now = self.reigning()
        return now.adapter_name if now else None

    def reigning(self) -> Champion | None:
        """The champion, with the digest of its weights."""
        return self._standing(self._object.read())

    def previous(self) -> str | None:
        """Name of the adapter that was champion before; never the champion's own."""
        now = self._standing(self._object.read())
        return now.previous if now else None

    def since(self) -> datetime | None:
        """When the champion became it; None where nobody knows."""
        seen = self._object.read()
        return seen.since if seen else None

    def kept(self) -> dict[str, str]:
        """Adapters that somebody may go back to, and why: by the object, and by aliases that do not follow it yet."""
        now = self._standing(self._object.read())
        named = {PREVIOUS: now and now.previous, CHAMPION: now and now.adapter_name}
        by_alias = {_adapter_name(self._version_with(alias)): f"MLflow calls it {alias}" for alias in named}
        by_object = {name: f"it is {alias}" for alias, name in named.items()}
        return {name: why for name, why in {**by_alias, **by_object}.items() if name}

    def register(self, adapter: PublishedAdapter, mlflow_run_id: str, solved: int, card: str = "") -> None:
        """Make the adapter a version of the registered model, described by its card; a second call finds the first."""
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
            self._client.create_model_version(
                self._name, adapter.uri, run_id=mlflow_run_id, tags=tags, description=card or None
            )

    def require(self, adapter_name: str) -> ModelVersion:
        """The version of this adapter; raises NoSuchAdapter with the names that there are."""
        version = self._version_of(adapter_name)
        if version is None:
            known = ", ".join(self._names()) or "none"
            raise NoSuchAdapter(f"registered model {self._name} has no adapter {adapter_name!r}; it has {known}")
        return version

    def promote(self, adapter_name: str) -> ChampionChange:
        """Make a registered adapter the champion and the former one ``previous``; the champion itself stays as it is.

        Raises NoSuchAdapter, and ChampionMoved when somebody else was faster.
        """
        version, seen = self.require(adapter_name), self._object.read()
        now = self._standing(seen)
        if now is None or now.adapter_name != adapter_name:
            former = now.adapter_name if now else None
            self._object.write(Champion(adapter_name=adapter_name, sha256=_sha256(version), previous=former), seen)
        elif seen is None or not seen.champion.change:
            self._object.write(now, seen)
        return self._follow()

    def roll_back(self) -> ChampionChange:
        """Make the former champion champion again; done twice it goes back once.

        So it may be repeated whenever nobody knows how far it came. The adapter that it went away from stays
        ``previous`` and comes back when it is promoted by its name. Raises NoSuchAdapter when there was none before,
        and ChampionMoved when somebody else was faster.
        """
        seen = self._object.read()
        now = self._standing(seen)
        if now is None or now.previous is None:
            raise NoSuchAdapter(f"registered model {self._name} has no previous champion to go back to")
        if not now.rolled_back:
            version = self.require(now.previous)
            back = Champion(
                adapter_name=now.previous, sha256=_sha256(version), previous=now.adapter_name, rolled_back=True
            )
            self._object.write(back, seen)
        return self._follow()

    def _standing(self, seen: Seen | None) -> Champion | None:
        """The object's word; MLflow's where the object is lost, or from a time when it did not name the former one."""
        if seen is not None and seen.champion.change:
            return seen.champion
        champion, previous = self._version_with(CHAMPION), _adapter_name(self._version_with(PREVIOUS))
        if seen is not None:
            known = seen.champion
        elif champion is not None:
            known = Champion(adapter_name=champion.tags["adapter"], sha256=_sha256(champion))
        else:
            return None
        return known.model_copy(update={"previous": None if previous == known.adapter_name else previous})

    def _follow(self) -> ChampionChange:
        """Make MLflow's aliases what the object says; look again, for another change may have come in between."""
        for _ in range(_LOOKS):
            seen = self._object.read()
            if seen is None:
                break
            now = seen.champion
            self._set_aliases(now)
            again = self._object.read()
            if again is not None and again.champion.change == now.change:
                return ChampionChange(champion=now.adapter_name, previous=now.previous)
        raise ChampionMoved(
            f"the champion of {self._name} changes again and again, MLflow's aliases may be behind; see who promotes, "
            "then do it again"
        )

    def _set_aliases(self, now: Champion) -> None:
        """In an order in which both never name the same adapter."""
        champion, previous = self._version_with(CHAMPION), self._version_with(PREVIOUS)
        if previous is not None and (now.previous is None or _adapter_name(previous) == now.adapter_name):
            self._client.delete_registered_model_alias(self._name, PREVIOUS)
            previous = None
        if _adapter_name(champion) != now.adapter_name:
            self._client.set_registered_model_alias(self._name, CHAMPION, self.require(now.adapter_name).version)
        if now.previous and _adapter_name(previous) != now.previous:
            self._client.set_registered_model_alias(self._name, PREVIOUS, self.require(now.previous).version)

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


def _sha256(version: ModelVersion) -> str:
    return str(version.tags["sha256"])
