"""Who is champion: MLflow's registry on SQLite, and the object that the endpoint reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from mlflow.artifacts import download_artifacts

from serving.adapter import file_sha256
from serving.app import champion_uri
from serving.champion import Champion, ChampionMoved, ChampionObject
from serving.publish import AdapterStore
from serving.settings import ServerSettings
from tasks.errors import NoSuchAdapter, NotProven
from tasks.records import Certificate, ChampionChange, Comparison, Decision, PublishedAdapter, Verdict
from tasks.release.aliases import ChampionRegistry, registry_of
from tasks.release.champion import move_champion, promote_adapter
from tasks.release.settings import ChampionSettings
from tasks.settings import TrackingSettings
from tests.moto_server import moto_server
from tests.recording import recording
from tests.unit.flows.small_models import export
from tests.unit.samples import SERVER, certificate_of


@pytest.fixture(scope="module")
def tracking_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def s3(moto: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    identity = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {"AWS_ENDPOINT_URL": moto, "NO_PROXY": "127.0.0.1", **identity}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="models")
    return client


@pytest.fixture
def server(request: pytest.FixtureRequest) -> ServerSettings:
    """A base model of each test's own, so that they can share one database."""
    base = re.sub(r"\W+", "-", request.node.name)
    return SERVER.model_copy(update={"base_model_id": base, "adapters_uri": f"s3://models/adapters/{base}"})


@pytest.fixture
def registry(tracking_uri: str, s3: Any, server: ServerSettings) -> ChampionRegistry:
    found = registry_of(settings(tracking_uri, server))
    for name in ("a", "b", "c"):
        found.register(adapter(name), mlflow_run_id="", solved=40)
    return found


def pointed(s3: Any, server: ServerSettings) -> Champion | None:
    """What the endpoint goes by."""
    found = ChampionObject(s3, champion_uri(server)).read()
    return found.champion if found else None


def settings(tracking_uri: str, server: ServerSettings) -> ChampionSettings:
    return ChampionSettings(
        server=server, tracking=TrackingSettings(tracking_uri=tracking_uri, outbox_dir="unused", logs_dir="unused")
    )


def registry_uri(registry: ChampionRegistry) -> str:
    return registry._client.tracking_uri


def aliases(registry: ChampionRegistry) -> tuple[str | None, str | None]:
    """As MLflow shows them."""
    named = (registry._version_with("champion"), registry._version_with("previous"))
    champion, previous = (version and version.tags["adapter"] for version in named)
    return champion, previous


def adapter(name: str) -> PublishedAdapter:
    uri = f"{SERVER.adapters_uri}/{name}"
    return PublishedAdapter(name=name, uri=uri, sha256="0" * 64, step=4, model_id=f"tiny:{name}")


def certificate(*failures: str) -> Certificate:
    return certificate_of(adapter("a"), *failures)


def verdict(decision: Decision) -> Verdict:
    against_base = Comparison(
        reference="tiny", wins=9, losses=1, both=20, neither=34, p_value=0.02, difference=0.125, interval=(0.02, 0.22)
    )
    return Verdict(
        decision=decision,
        reason="",
        candidate_solved=29,
        num_mazes=64,
        interval=(0.3, 0.6),
        against_base=against_base,
        against_champion=None,
        visible_gain=0.2,
    )


def test_promotion_moves_both_aliases_and_the_name_that_clients_use(
    registry: ChampionRegistry, s3: Any, server: ServerSettings
) -> None:
    assert (registry.champion(), registry.previous()) == (None, None)
    assert registry.promote("a") == ChampionChange(champion="a", previous=None)
    assert registry.promote("b") == ChampionChange(champion="b", previous="a")
    assert registry.promote("b") == ChampionChange(champion="b", previous="a")
    found = pointed(s3, server)
    assert found is not None
    assert (found.adapter_name, found.previous) == ("b", "a")


def test_rolling_back_twice_goes_back_once_and_the_other_returns_by_its_name(
    registry: ChampionRegistry, s3: Any, server: ServerSettings
) -> None:
    registry.promote("a")
    registry.promote("b")
    for _ in range(3):
        assert registry.roll_back() == ChampionChange(champion="a", previous="b")
        found = pointed(s3, server)
        assert found is not None
        assert found.adapter_name == "a"
    assert registry.promote("b") == ChampionChange(champion="b", previous="a")
    assert registry.roll_back() == ChampionChange(champion="a", previous="b")


def test_of_two_promotions_at_once_one_is_told_that_it_lost(
    registry: ChampionRegistry, s3: Any, server: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second reads, then the first goes all the way, then the second writes."""
    registry.promote("a")
    other = registry_of(settings(registry_uri(registry), server))
    write = ChampionObject.write

    def late(slow: ChampionObject, champion: Champion, over: Any) -> None:
        monkeypatch.setattr(ChampionObject, "write", write)
        other.promote("b")
        write(slow, champion, over)

    monkeypatch.setattr(ChampionObject, "write", late)
    with pytest.raises(ChampionMoved, match=r"c did not become champion.* and b is champion now"):
        registry.promote("c")
    found = pointed(s3, server)
    assert found is not None
    assert (found.adapter_name, found.previous) == ("b", "a")
    assert (registry.champion(), aliases(registry)) == ("b", ("b", "a"))


@pytest.mark.parametrize("between", ["write", "_set_aliases"])
def test_a_promotion_that_comes_in_between_leaves_mlflow_with_the_endpoint_s_champion(
    registry: ChampionRegistry, s3: Any, server: ServerSettings, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    """The first is held up after it has become champion, or while it sets its aliases; the second goes all the way."""
    registry.promote("a")
    other = registry_of(settings(registry_uri(registry), server))
    held_up = ChampionObject if between == "write" else ChampionRegistry
    done = getattr(held_up, between)

    def slow(*args: Any) -> None:
        monkeypatch.setattr(held_up, between, done)
        if between == "write":
            done(*args)
        other.promote("c")
        if between != "write":
            done(*args)

    monkeypatch.setattr(held_up, between, slow)
    registry.promote("b")
    found = pointed(s3, server)
    assert found is not None
    assert (found.adapter_name, found.previous) == ("c", "b")
    assert aliases(registry) == ("c", "b")


def test_an_object_from_before_takes_the_former_champion_from_mlflow(
    registry: ChampionRegistry, s3: Any, server: ServerSettings
) -> None:
    registry.promote("a")
    registry.promote("b")
    bucket, _, key = champion_uri(server).removeprefix("s3://").partition("/")
    s3.put_object(Bucket=bucket, Key=key, Body=json.dumps({"adapter_name": "b", "sha256": "0" * 64}).encode())
    assert (registry.champion(), registry.previous()) == ("b", "a")
    assert registry.roll_back() == ChampionChange(champion="a", previous="b")
    s3.delete_object(Bucket=bucket, Key=key)
    assert registry.promote("a") == ChampionChange(champion="a", previous="b")


def test_without_a_former_champion_there_is_no_way_back(registry: ChampionRegistry) -> None:
    registry.promote("a")
    with pytest.raises(NoSuchAdapter, match="has no previous champion to go back to"):
        registry.roll_back()


def test_registering_twice_is_registering_once(registry: ChampionRegistry) -> None:
    before = registry.require("a").version
    registry.register(adapter("a"), mlflow_run_id="", solved=40)
    assert registry.require("a").version == before
    with pytest.raises(NoSuchAdapter, match="no adapter 'd'; it has a, b, c"):
        registry.require("d")


@pytest.mark.parametrize(
    ("failures", "decision", "champion"),
    [((), "promote", "a"), ((), "keep", None), ((), "reject", None), (("other weights are served",), "promote", None)],
)
def test_only_a_proven_and_better_adapter_becomes_champion(
    tracking_uri: str,
    s3: Any,
    server: ServerSettings,
    failures: tuple[str, ...],
    decision: Decision,
    champion: str | None,
) -> None:
    context, champions = recording()[0], settings(tracking_uri, server)
    change = promote_adapter.fn(context, champions, certificate(*failures), verdict(decision))
    assert (change.champion if change else None) == champion
    assert (pointed(s3, server) is not None) is (champion is not None)


def test_nobody_can_promote_by_hand_what_was_not_proven(tracking_uri: str, s3: Any, server: ServerSettings) -> None:
    context, champions = recording()[0], settings(tracking_uri, server)
    promote_adapter.fn(context, champions, certificate(), verdict("keep"))
    with pytest.raises(NotProven, match="a: has no certificate"):
        move_champion.fn(context, champions, "a")
    AdapterStore(s3, server.adapters_uri, "a").put_certificate(certificate("it is the base").model_dump_json())
    with pytest.raises(NotProven, match="a: it is the base"):
        move_champion.fn(context, champions, "a")
    assert pointed(s3, server) is None


def test_the_champion_is_downloaded_by_its_alias_as_a_folder_that_peft_reads(
    tracking_uri: str,
    s3: Any,
    server: ServerSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = export(tmp_path / "export")
    for name in made:
        s3.upload_file(str(tmp_path / "export" / name), "models", f"adapters/{server.base_model_id}/a/{name}")
    mine = adapter("a").model_copy(update={"uri": f"{server.adapters_uri}/a"})
    context, champions = recording()[0], settings(tracking_uri, server)
    promote_adapter.fn(context, champions, certificate_of(mine), verdict("promote"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_uri)
    uri = f"models:/{server.base_model_id}-adapters@champion"
    folder = Path(download_artifacts(uri, dst_path=str(tmp_path / "here"), tracking_uri=tracking_uri))
    assert {path.name: file_sha256(path) for path in folder.iterdir()} == made
    assert json.loads((folder / "adapter_config.json").read_text())["peft_type"] == "LORA"
    version = registry_of(champions).require("a")
    assert "solves 29 of 64 judge mazes through the endpoint (95% interval 30% to 60%)" in str(version.description)
    assert context.run.read("model_card.md") == version.description
