"""Who is champion: MLflow's registry on SQLite, and the object that the endpoint reads."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from botocore.exceptions import ClientError

import tasks.release.aliases
import tasks.release.champion
from serving.adapter import CERTIFICATE
from serving.settings import ServerSettings
from tasks.errors import NoSuchAdapter, NotProven
from tasks.records import Certificate, ChampionChange, Comparison, Decision, PublishedAdapter, Verdict
from tasks.release.aliases import ChampionRegistry, registry_of
from tasks.release.champion import move_champion, promote_adapter
from tasks.release.settings import ChampionSettings
from tasks.settings import TrackingSettings
from tests.recording import recording
from tests.unit.samples import SERVER, certificate_of


class FakeS3:
    """Objects in a dict."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:  # noqa: N803
        self.objects[f"{Bucket}/{Key}"] = Body

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        if f"{Bucket}/{Key}" not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
        return {"Body": io.BytesIO(self.objects[f"{Bucket}/{Key}"])}

    def champion(self) -> str:
        return json.loads(self.objects["models/adapters/tiny.champion.json"])["adapter_name"]


@pytest.fixture(scope="module")
def tracking_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> FakeS3:
    fake = FakeS3()
    for module in (tasks.release.champion, tasks.release.aliases):
        monkeypatch.setattr(module.boto3, "client", lambda name: fake)
    return fake


@pytest.fixture
def server(request: pytest.FixtureRequest) -> ServerSettings:
    """A base model of each test's own, so that they can share one database."""
    return SERVER.model_copy(update={"base_model_id": re.sub(r"\W+", "-", request.node.name)})


@pytest.fixture
def registry(tracking_uri: str, s3: FakeS3, server: ServerSettings) -> ChampionRegistry:
    found = registry_of(settings(tracking_uri, server))
    for name in ("a", "b"):
        found.register(adapter(name), mlflow_run_id="", solved=40)
    return found


def settings(tracking_uri: str, server: ServerSettings) -> ChampionSettings:
    return ChampionSettings(server=server, tracking=TrackingSettings(tracking_uri=tracking_uri, outbox_dir="unused"))


def adapter(name: str) -> PublishedAdapter:
    uri = f"{SERVER.adapters_uri}/{name}"
    return PublishedAdapter(name=name, uri=uri, sha256="0" * 64, step=4, model_id=f"tiny:{name}")


def certificate(*failures: str) -> Certificate:
    return certificate_of(adapter("a"), *failures)


def verdict(decision: Decision) -> Verdict:
    against_base = Comparison(reference="tiny", wins=9, losses=1, both=20, neither=34, p_value=0.02)
    return Verdict(
        decision=decision,
        reason="",
        candidate_solved=29,
        num_mazes=64,
        interval=(0.3, 0.6),
        against_base=against_base,
        against_champion=None,
    )


def test_promotion_moves_both_aliases_and_the_name_that_clients_use(registry: ChampionRegistry, s3: FakeS3) -> None:
    assert (registry.champion(), registry.previous()) == (None, None)
    assert registry.promote("a") == ChampionChange(champion="a", previous=None)
    assert registry.promote("b") == ChampionChange(champion="b", previous="a")
    assert registry.promote("b") == ChampionChange(champion="b", previous="a")
    assert s3.champion() == "b"


def test_rolling_back_twice_is_where_one_was(registry: ChampionRegistry, s3: FakeS3) -> None:
    registry.promote("a")
    registry.promote("b")
    assert registry.roll_back() == ChampionChange(champion="a", previous="b")
    assert s3.champion() == "a"
    assert registry.roll_back() == ChampionChange(champion="b", previous="a")


def test_without_a_former_champion_there_is_no_way_back(registry: ChampionRegistry) -> None:
    registry.promote("a")
    with pytest.raises(NoSuchAdapter, match="has no previous champion to go back to"):
        registry.roll_back()


def test_registering_twice_is_registering_once(registry: ChampionRegistry) -> None:
    before = registry.require("a").version
    registry.register(adapter("a"), mlflow_run_id="", solved=40)
    assert registry.require("a").version == before
    with pytest.raises(NoSuchAdapter, match="no adapter 'c'; it has a, b"):
        registry.require("c")


@pytest.mark.parametrize(
    ("failures", "decision", "champion"),
    [((), "promote", "a"), ((), "keep", None), ((), "reject", None), (("other weights are served",), "promote", None)],
)
def test_only_a_proven_and_better_adapter_becomes_champion(
    tracking_uri: str,
    s3: FakeS3,
    server: ServerSettings,
    failures: tuple[str, ...],
    decision: Decision,
    champion: str | None,
) -> None:
    context, champions = recording()[0], settings(tracking_uri, server)
    change = promote_adapter.fn(context, champions, certificate(*failures), verdict(decision))
    assert (change.champion if change else None) == champion
    assert bool(s3.objects) is (champion is not None)


def test_nobody_can_promote_by_hand_what_was_not_proven(tracking_uri: str, s3: FakeS3, server: ServerSettings) -> None:
    context, champions = recording()[0], settings(tracking_uri, server)
    promote_adapter.fn(context, champions, certificate(), verdict("keep"))
    with pytest.raises(NotProven, match="a: has no certificate"):
        move_champion.fn(context, champions, "a")
    s3.objects[f"models/adapters/tiny/a/{CERTIFICATE}"] = certificate("it is the base").model_dump_json().encode()
    with pytest.raises(NotProven, match="a: it is the base"):
        move_champion.fn(context, champions, "a")
    assert "models/adapters/tiny.champion.json" not in s3.objects
