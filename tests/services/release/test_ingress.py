"""The endpoint's front with Ray Serve LLM's own classes, S3 by moto: what a client's calls get, name by name."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from serving.champion import Champion, ChampionObject
from tests.moto_server import moto_server

pytestmark = pytest.mark.slow_s(60)
ROOT = Path(__file__).resolve().parents[3]
# Moto keeps its buckets for the whole process: one that no other file fills.
URI = "s3://ingress/adapters/tiny.champion.json"
ASKED = (
    "models",
    "model tiny:champion",
    "chat tiny:champion",
    "chat tiny",
    "chat tiny:r-step-4",
    "model other:champion",
)


@pytest.fixture(scope="module")
def moto() -> Iterator[dict[str, str]]:
    """The environment that points at it."""
    identity = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}
    with moto_server() as url:
        yield {**identity, "AWS_ENDPOINT_URL": url, "NO_PROXY": "127.0.0.1"}


@pytest.fixture
def s3(moto: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in moto.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="ingress")
    for adapter in ("r-step-4", "r-step-8"):
        client.put_object(Bucket="ingress", Key=f"adapters/tiny/{adapter}/adapter_config.json", Body=b"{}")
    return client


def ask(*asked: str, **env: str) -> dict[str, Any]:
    python, script = ROOT / ".venv-serve" / "bin" / "python", ROOT / "tests" / "services" / "release" / "ask_ingress.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run([python, script, URI, *asked], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_while_nobody_is_champion_the_name_is_not_listed_and_answered_with_404(s3: Any) -> None:
    found = ask(*ASKED)
    assert [card["id"] for card in found["models"]] == ["tiny", "tiny:r-step-4", "tiny:r-step-8"]
    for asked in ("model tiny:champion", "chat tiny:champion"):
        assert found[asked]["status"] == 404
        assert "no adapter was promoted yet" in found[asked]["detail"]


def test_the_champion_is_listed_retrieved_and_answers_as_the_adapter_that_it_stands_for(s3: Any) -> None:
    ChampionObject(s3, URI).write(Champion(adapter_name="r-step-8", sha256=""), None)
    found = ask(*ASKED)
    cards = {card["id"]: card for card in found["models"]}
    assert list(cards) == ["tiny", "tiny:r-step-4", "tiny:r-step-8", "tiny:champion"]
    assert cards["tiny:champion"]["metadata"]["stands_for"] == "tiny:r-step-8"
    assert cards["tiny:champion"]["metadata"]["bucket_uri"] == cards["tiny:r-step-8"]["metadata"]["bucket_uri"]
    assert found["model tiny:champion"] == cards["tiny:champion"]
    assert found["chat tiny:champion"] == ["tiny:r-step-8 by a replica with tiny:r-step-8"]
    assert found["chat tiny"] == ["tiny by a replica with the base"]
    assert found["chat tiny:r-step-4"] == ["tiny:r-step-4 by a replica with tiny:r-step-4"]
    assert found["model other:champion"] is None
    assert found["handles"] <= 256


def test_a_store_that_is_away_is_a_503_that_says_so_and_the_base_answers(s3: Any) -> None:
    found = ask("chat tiny:champion", "chat tiny", AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert found["chat tiny:champion"]["status"] == 503
    assert "the object store does not answer" in found["chat tiny:champion"]["detail"]
    assert found["chat tiny"] == ["tiny by a replica with the base"]
