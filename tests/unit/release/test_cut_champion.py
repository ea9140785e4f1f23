"""Promotion and rollback, cut at every outside call: MLflow's registry on SQLite, the champion's object on moto."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from serving.champion import Champion, ChampionObject
from tasks.errors import NoSuchAdapter
from tasks.records import PublishedAdapter
from tasks.release.aliases import ChampionRegistry
from tests.every_cut import every_cut
from tests.moto_server import moto_server

pytestmark = pytest.mark.slow_s(35)
MODEL, POINTER = "tiny-adapters", "s3://models/adapters/tiny.champion.json"


class World:
    """A registry of a, b and c, where one was champion after the other, as often as a trial wants it anew."""

    def __init__(self, folder: Path, s3: Any) -> None:
        self.s3, self.database = s3, folder / "mlflow.db"
        self.uri = f"sqlite:///{self.database}"
        registry = self.registry()
        for name in ("a", "b", "c"):
            adapter = PublishedAdapter(name=name, uri=f"s3://m/{name}", sha256=name, step=4, model_id=f"tiny:{name}")
            registry.register(adapter, mlflow_run_id="", solved=40)
        self.versions = {name: registry.require(name).version for name in ("a", "b", "c")}

    def registry(self) -> ChampionRegistry:
        """As a fresh process has it."""
        return ChampionRegistry(self.uri, MODEL, POINTER, self.s3)

    def aliases(self) -> dict[str, str]:
        names = {int(version): name for name, version in self.versions.items()}
        with closing(sqlite3.connect(self.database)) as database:
            found = database.execute("SELECT alias, version FROM registered_model_aliases").fetchall()
        return {alias: names[version] for alias, version in found}

    def stands(self, champion: str | None, previous: str | None) -> None:
        """Nothing pending: the object and the aliases agree."""
        named = {"champion": champion, "previous": previous}
        with closing(sqlite3.connect(self.database)) as database, database:
            database.execute("DELETE FROM registered_model_aliases")
            for alias, name in named.items():
                if name:
                    row = (alias, self.versions[name], MODEL)
                    insert = "INSERT INTO registered_model_aliases (alias, version, name) VALUES (?, ?, ?)"
                    database.execute(insert, row)
        self.s3.delete_object(Bucket="models", Key="adapters/tiny.champion.json")
        if champion:
            ChampionObject(self.s3, POINTER).write(
                Champion(adapter_name=champion, sha256=champion, previous=previous), None
            )


@pytest.fixture(scope="module", autouse=True)
def quick_database() -> Iterator[None]:
    """Nothing here outlives its machine, so no commit waits for the disk."""

    def quick(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = MEMORY")

    event.listen(Engine, "connect", quick)
    yield
    event.remove(Engine, "connect", quick)


@pytest.fixture(scope="module")
def world(quick_database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    identity = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    with moto_server() as url:
        # One for all: making a client costs more than what is asked with it.
        s3 = boto3.client("s3", endpoint_url=url, **identity)
        s3.create_bucket(Bucket="models")
        yield World(tmp_path_factory.mktemp("mlflow"), s3)


class Moves:
    """``order`` on a registry where b is champion and a was before."""

    def __init__(self, world: World, order: str, name: str = "") -> None:
        self.world, self.order, self.name = world, order, name
        world.stands("b", "a")

    def run(self) -> None:
        registry = self.world.registry()
        if self.order == "promote":
            registry.promote(self.name)
        else:
            registry.roll_back()

    def state(self) -> dict[str, Any]:
        """Everything that names an adapter, but the mark that each change has of its own."""
        found = ChampionObject(self.world.s3, POINTER).read()
        return {
            "object": found.champion.model_dump(exclude={"change"}) if found else None,
            "aliases": self.world.aliases(),
        }


def safe(trial: Moves) -> None:
    """Between two writes as well: the champion is not its own predecessor, and who is named is not cleaned up."""
    state = trial.state()
    aliases, pointed = state["aliases"], state["object"]
    assert aliases["champion"] != aliases.get("previous")
    assert pointed["adapter_name"] != pointed["previous"]
    assert {aliases["champion"], pointed["adapter_name"], pointed["previous"]} <= set(trial.world.registry().kept())


def test_a_promotion_ends_at_the_same_champion_wherever_it_was_cut(world: World) -> None:
    cuts = every_cut(lambda: Moves(world, "promote", "c"), always=safe)
    assert sum(call.startswith("PUT") for call in cuts.calls) == 1
    trial = Moves(world, "promote", "c")
    trial.run()
    assert trial.state()["aliases"] == {"champion": "c", "previous": "b"}


def test_a_rollback_ends_at_the_same_champion_wherever_it_was_cut(world: World) -> None:
    """Also where its last answer got lost: done again it does not go forth to the adapter that it went away from."""
    every_cut(lambda: Moves(world, "rollback"), always=safe)
    trial = Moves(world, "rollback")
    trial.run()
    assert trial.state()["aliases"] == {"champion": "a", "previous": "b"}


def test_a_promotion_of_the_former_champion_ends_there_wherever_it_was_cut(world: World) -> None:
    every_cut(lambda: Moves(world, "promote", "a"), always=safe, ways=("killed",))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_after_a_rollback_that_nobody_finished_another_order_starts_from_where_clients_are(
    world: World, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut behind the object, behind one alias taken away, behind one set."""
    world.stands("b", "a")
    writes = ["write", "delete_registered_model_alias", "set_registered_model_alias"]
    registry = world.registry()
    if number == 1:
        monkeypatch.setattr(registry, "_follow", lambda: 1 / 0)
    else:
        done = getattr(registry._client, writes[number - 1])
        monkeypatch.setattr(registry._client, writes[number - 1], lambda *args: (done(*args), 1 / 0))
    with pytest.raises(ZeroDivisionError):
        registry.roll_back()
    change = world.registry().promote("c")
    assert (change.champion, change.previous) == ("c", "a")


def test_without_a_former_champion_a_rollback_changes_nothing(world: World) -> None:
    world.stands("b", None)
    with pytest.raises(NoSuchAdapter):
        world.registry().roll_back()
    assert world.registry().champion() == "b"
