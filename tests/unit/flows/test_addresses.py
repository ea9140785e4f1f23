"""No address brings a login: whatever setting or variable gives it, it is refused, and never said again."""

from __future__ import annotations

import copy
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import ValidationError as RefusedByServer
from prefect.utilities.schema_tools import validate
from prefect.utilities.templating import apply_values
from pydantic import BaseModel, ValidationError
from typer.testing import CliRunner

import flows.knobs
from flows.cli.main import app
from flows.deployments import deployments, load_deployment, settings_type
from flows.refusals import SettingsRefused
from serving.store import LoginInAddress, s3_client
from tasks.addresses import LOGINS, has_login
from tasks.settings import Settings, TrackingSettings

PASSWORD = "hunter2"
GIVEN = f"http://maze:{PASSWORD}@host:5000"
WHOLES = sorted({settings_type(name) for name in deployments()}, key=lambda whole: whole.__name__)
KNOBS = [
    knobs
    for knobs in vars(flows.knobs).values()
    if isinstance(knobs, type) and issubclass(knobs, Settings) and knobs is not Settings
]
ADDRESSES = ("uri", "url", "address", "dashboard", "registry", "listen", "host", "endpoint", "server")
"""Last words of names that are addresses."""


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECT_DIR", "/project")
    for name in ("RAY_JOBS_ADDRESS", "MLFLOW_TRACKING_URI", "SERVE_DASHBOARD", "SERVE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("SERVE_LISTEN", "127.0.0.1:1")


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every model that a value of this type can be, or hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from models_in(part)


def leaves(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every field that has no fields itself, in whichever kind of a union."""
    for name, field in model.model_fields.items():
        inner = list(models_in(field.annotation))
        if not inner:
            yield *path, name
        for below in inner:
            # What a mapping's values are lies one key below it.
            is_mapping = typing.get_origin(field.annotation) in (dict, Mapping)
            yield from leaves(below, (*path, name, "some") if is_mapping else (*path, name))


def planted(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    document: Any = value
    for key in reversed(path):
        document = {key: document}
    return document


def test_every_setting_of_every_flow_refuses_a_login_by_its_path() -> None:
    assert len(WHOLES) >= 9
    found = {path for whole in WHOLES for path in leaves(whole)}
    for whole in WHOLES:
        for path in leaves(whole):
            for value in (GIVEN, [GIVEN], {"HTTPS_PROXY": GIVEN}):
                with pytest.raises(ValidationError) as refused:
                    whole.model_validate(planted(path, value))
                (fault,) = refused.value.errors()
                assert fault["loc"][: len(path)] == path
                assert fault["type"] == "login_in_address"
                assert PASSWORD not in f"{refused.value}{fault}"
    addresses = {".".join(path) for path in found if path[-1].rpartition("_")[2] in ADDRESSES}
    assert addresses >= {
        "tracking.tracking_uri",
        "cluster.jobs_address",
        "serve.dashboard",
        "serve.url",
        "serve.server.listen",
        "serve.server.adapters_uri",
        "image.registry",
        "url",
    }


def test_an_address_among_the_settings_says_what_its_login_is_given_by() -> None:
    """A new address is named in LOGINS, or is one of those that S3 and Kubernetes are asked by."""
    by_aws = {"adapters_uri", "source_uri", "image_uri", "listen", "mlflow_uri"}
    names = {path[-1] for whole in WHOLES for path in leaves(whole)}
    addresses = {name for name in names if name.rpartition("_")[2] in ADDRESSES}
    assert addresses - by_aws <= LOGINS.keys()


def test_knobs_refuse_a_login_too() -> None:
    assert len(KNOBS) >= 5
    for knobs in KNOBS:
        for name in knobs.model_fields:
            with pytest.raises(ValidationError, match="a login in it") as refused:
                knobs.model_validate({name: f"see {GIVEN}/runs"})
            assert PASSWORD not in str(refused.value)


@pytest.mark.usefixtures("addresses")
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"platform.tracking.tracking_uri": GIVEN}, "platform.tracking.tracking_uri: .*MLFLOW_TRACKING_USERNAME"),
        ({"platform.cluster.jobs_address": GIVEN}, "platform.cluster.jobs_address: .*RAY_AUTH_TOKEN_PATH"),
        ({"platform.serve.url": f"http://{PASSWORD}@host"}, "platform.serve.url: .*MAZE_ENDPOINT_API_KEY"),
        ({"platform.train.engine.env.HTTPS_PROXY": GIVEN}, "platform.train.engine.env.HTTPS_PROXY: "),
        ({"platform.serve.server.engine_kwargs.x": [GIVEN]}, r"platform.serve.server.engine_kwargs.x.0: "),
        ({"note": f"see {GIVEN}"}, "note: .*a login in it"),
        ({"max_steps": GIVEN}, "max_steps: .*a login in it"),
        ({"platform.serve.server.adapters_uri": f"s3://a:{PASSWORD}@models/x"}, "a login in it"),
    ],
)
def test_a_login_is_refused_by_the_name_that_a_person_knows(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsRefused, match=named) as refused:
        load_deployment("retrain/local", changes)
    assert PASSWORD not in str(refused.value)


@pytest.mark.usefixtures("addresses")
def test_an_address_with_a_login_from_the_environment_is_refused_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", GIVEN)
    with pytest.raises(SettingsRefused, match=r"platform.tracking.tracking_uri: ") as refused:
        load_deployment("retrain/local", {})
    assert PASSWORD not in str(refused.value)
    with pytest.raises(SettingsRefused, match="there is nothing below an address") as refused:
        load_deployment("retrain/local", {"platform.tracking.tracking_uri.x": "1"})
    assert PASSWORD not in str(refused.value)


@pytest.mark.usefixtures("addresses")
@pytest.mark.parametrize("name", sorted(deployments()))
def test_prefect_s_server_takes_no_login_either_so_that_it_keeps_none(name: str) -> None:
    flow, _ = load_deployment(name, {})
    parameters = apply_values(copy.deepcopy(deployments()[name]["parameters"]), {})
    schema = parameter_schema(flow).model_dump_for_openapi()
    stage, key = next(
        text
        for text in (("tracking", "tracking_uri"), ("plan", "python"), ("hosting", "region"))
        if text[0] in parameters["platform"]
    )
    validate(parameters, schema, raise_on_error=True)
    parameters["platform"][stage][key] = GIVEN
    with pytest.raises(RefusedByServer):
        validate(parameters, schema, raise_on_error=True)


@pytest.mark.parametrize("variable", sorted(name for name in LOGINS if name.isupper()))
def test_a_command_refuses_a_login_in_the_environment(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, GIVEN)
    done = CliRunner().invoke(app, ["status"])
    assert done.exit_code == 2
    assert f"error: {variable}: an address with a login in it" in done.output
    assert PASSWORD not in done.output


def test_the_object_store_s_address_brings_no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", GIVEN)
    with pytest.raises(LoginInAddress, match="AWS_SECRET_ACCESS_KEY") as refused:
        s3_client()
    assert PASSWORD not in str(refused.value)


def test_an_error_of_another_field_does_not_repeat_what_was_given() -> None:
    with pytest.raises(ValidationError) as refused:
        TrackingSettings.model_validate({"tracking_uri": "http://host?token=hunter2", "outbox_dir": 1})
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("http://user:pass@host", True),
        ("https://token@host/path", True),
        ("//user@host", True),
        ("http://user:pa/ss@host/path", True),
        ("http://user:12/34@host", False),
        ("postgresql+psycopg://user:pass@host/db", True),
        ("see http://host:80 or https://user:pass@host.", True),
        ("http://host:5000", False),
        ("http://host:5000/@name", False),
        ("http://[::1]:5000/@name", False),
        ("https://host/@name", False),
        ("nvcr.io/nvidia/cuda@sha256:00", False),
        ("s3://bucket/key@version", False),
        ("sagemaker_ray://cluster/namespace", False),
        ("git@host:path", False),
    ],
)
def test_a_login_is_known_by_where_it_stands(text: str, has: bool) -> None:
    assert has_login(text) is has
