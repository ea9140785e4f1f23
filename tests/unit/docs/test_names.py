"""Links, paths, deployments and settings that the pages name exist."""

from __future__ import annotations

import re
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from flows.deployments import deployments
from flows.knobs import Knobs
from flows.settings.retrain import RetrainSettings
from tests.unit.docs.pages import PAGES, PROJECT, Found, anchors, links, spans

OURS = ("flows", "tasks", "rl", "serving", "docs", "docker", "bench", "locks", "tests")
FLOWS = {name.partition("/")[0] for name in deployments()}


def wrong_with_link(link: Found) -> str:
    """Why a relative link leads nowhere; empty where it does not."""
    target, _, anchor = link.text.partition("#")
    place = link.page if not target else link.page.parent / target
    if not place.exists():
        return "there is no such file"
    return f"it has no heading #{anchor}" if anchor and anchor not in anchors(place) else ""


def is_there(path: str) -> bool:
    """Whether a file, folder, module or pattern of the project is there."""
    name = path.rstrip("/")
    return (PROJECT / name).exists() or (PROJECT / f"{name}.py").is_file() or any(PROJECT.glob(name))


def test_every_relative_link_leads_somewhere() -> None:
    told = [link for link in links() if not re.match(r"[a-z]+:", link.text)]
    assert len(told) > 50
    assert not [f"{link}: {wrong}" for link in told if (wrong := wrong_with_link(link))]


def test_every_path_in_backticks_is_there() -> None:
    of_ours = re.compile(rf"({'|'.join(OURS)})/[\w./*-]*|(prefect\.yaml|Makefile|pyproject\.toml|[A-Z]+\.md)")
    told = [span for span in spans() if of_ours.fullmatch(span.text)]
    assert len(told) > 50
    assert not [str(span) for span in told if not is_there(span.text)]


def test_every_deployment_in_backticks_is_registered() -> None:
    told = [
        span for span in spans() if span.text.partition("/")[0] in FLOWS and re.fullmatch(r"[a-z-]+/[a-z-]+", span.text)
    ]
    assert len(told) > 10
    assert not [str(span) for span in told if span.text not in deployments()]


def fields(kind: Any) -> dict[str, Any]:
    """Fields of a settings model; of a union those of all members."""
    if get_origin(kind) is Annotated:
        return fields(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return {name: field for member in get_args(kind) for name, field in fields(member).items()}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return {}


def is_setting(path: str, kind: Any) -> bool:
    for part in path.split("."):
        if part not in fields(kind):
            return False
        kind = fields(kind)[part]
    return True


def test_every_setting_in_backticks_is_a_field() -> None:
    rooms = "|".join(fields(RetrainSettings))
    named = re.compile(rf"(?:platform\.)?((?:{rooms})(?:\.(?!json|md)[a-z_]+)+)(?:=.*)?")
    told = [(span, found[1]) for span in spans() if (found := named.fullmatch(span.text))]
    assert len(told) > 5
    assert not [str(span) for span, path in told if not is_setting(path, RetrainSettings)]


def test_the_table_of_knobs_is_the_form_s() -> None:
    text = (PROJECT / "docs" / "quickstart.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(Knobs.model_fields)


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        ("docs/nowhere.md", "there is no such file"),
        ("docs/serving.md#no-such-thing", "it has no heading #no-such-thing"),
        ("docs/serving.md#the-champion", ""),
    ],
)
def test_a_link_that_leads_nowhere_would_be_found(target: str, wrong: str) -> None:
    assert wrong_with_link(Found(PROJECT / "README.md", target)) == wrong


def test_a_path_or_setting_that_is_gone_would_be_found() -> None:
    assert not is_there("tasks/cluster/gone.py")
    assert is_there("tasks/evidence/prefect_*.py")
    assert not is_setting("hosting.take_under", RetrainSettings)
    assert is_setting("hosting.take_over", RetrainSettings)


def test_no_page_names_a_place_of_one_machine() -> None:
    assert not [
        f"{page.name}: {found}"
        for page in PAGES
        for found in re.findall(r"/(?:home|root|work|Users)/\S+", page.read_text())
    ]
