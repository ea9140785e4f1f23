"""Values from the command line: typed by the field that they are for, never by what they look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from flows.cli.knobs import overrides_of
from flows.cli.typed import Ambiguous, typed
from flows.deployments import load_deployment, load_settings, settings_type
from flows.settings.retrain import RetrainSettings

ENGINE = "platform.serve.server.engine_kwargs"


class Kept(BaseModel):
    kind: str = "kept"


class Made(BaseModel):
    kind: str = "made"
    name: str = ""
    count: int = 1


class Small(BaseModel):
    hosting: Kept | Made
    is_on: bool = False
    rate: float = 0.0
    label: str | None = None
    names: dict[str, str] = {}
    anything: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("hosting.name", "2026-11-30", "2026-11-30"),
        ("hosting.name", "0123", "0123"),
        ("hosting.name", "null", "null"),
        ("hosting.name", "on", "on"),
        ("hosting.name", "1_000", "1_000"),
        ("hosting.name", "1:30", "1:30"),
        ("hosting.name", "a #b", "a #b"),
        ("hosting.name", "a: b", "a: b"),
        ("hosting.name", "{a", "{a"),
        ("hosting.name", "", ""),
        ("hosting.name", '"0123"', "0123"),
        ("hosting.count", "12", 12),
        ("hosting", "{kind: made, name: 2026-11-30, count: 2}", {"kind": "made", "name": "2026-11-30", "count": 2}),
        ("is_on", "true", True),
        ("rate", "9e-1", 0.9),
        ("rate", "1", 1),
        ("label", "null", None),
        ("label", "~", "~"),
        ("names.day", "2026-11-30", "2026-11-30"),
        ("names.switch", "off", "off"),
        ("anything.x", "9e-1", 0.9),
        ("anything.x", ".85", 0.85),
        ("anything.x", "1.", 1.0),
        ("anything.x", "-12", -12),
        ("anything.x", "false", False),
        ("anything.x", "null", None),
        ("anything.x", "2026-11-30", "2026-11-30"),
        ("anything.x", '"on"', "on"),
        ("anything.x", "[1, 9e-1, a]", [1, 0.9, "a"]),
        ("anything.x.y", "3", 3),
    ],
)
def test_a_value_is_what_its_field_wants(path: str, text: str, value: Any) -> None:
    found = typed(text, path, Small)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(("text", "value"), [("on", True), ("off", False), ("yes", True)])
def test_a_switch_takes_the_words_that_pydantic_takes(text: str, value: bool) -> None:
    assert Small(hosting=Kept(), is_on=typed(text, "is_on", Small)).is_on == value


def test_a_count_takes_underscores_as_pydantic_does() -> None:
    assert Made(count=typed("1_000", "hosting.count", Small)).count == 1000


@pytest.mark.parametrize("text", ["on", "No", "0123", "1_000", "~", "TRUE", "0x1F", "1:30", "{a: [yes]}"])
def test_what_readers_disagree_on_is_refused_where_anything_is_taken(text: str) -> None:
    with pytest.raises(Ambiguous, match="may be a text or something else; write a text in double quotes"):
        typed(text, "anything.x", Small)


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECT_DIR", str(Path.cwd()))


@pytest.mark.usefixtures("addresses")
def test_a_run_of_a_day_and_an_engine_s_number_go_through_to_the_settings() -> None:
    texts = overrides_of(
        "retrain/hyperpod",
        ["run_name=2026-11-30", f"{ENGINE}.x=9e-1", "learning_rate=1e-5", "platform.hosting.namespace=123"],
    )
    settings = load_settings("retrain/hyperpod", texts)
    assert settings.run_name == "2026-11-30"
    assert settings.serve.server.engine_kwargs["x"] == 0.9
    assert (settings.train.grpo.learning_rate, settings.hosting.namespace) == (1e-5, "123")


@pytest.mark.usefixtures("addresses")
def test_settings_have_their_type_and_an_argument_without_a_value_is_named() -> None:
    assert settings_type("retrain/local") is RetrainSettings
    with pytest.raises(ValueError, match="'run_name' is no key=value"):
        overrides_of("retrain/local", ["run_name"])


@pytest.mark.usefixtures("addresses")
def test_a_path_below_a_value_is_named() -> None:
    with pytest.raises(ValueError, match=r"hosting.namespace.x: there is nothing below 'maze'"):
        load_deployment("retrain/hyperpod", {"platform.hosting.namespace.x": 1})
