"""Publishing while the store stumbles, slows down, cuts connections or refuses: a real store behind a faulty proxy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from serving.publish import AdapterStore, UploadFailed, publish
from serving.store import PATIENT
from tasks.local.process import Processes
from tasks.local.services import LOCAL_BUCKET, LOCAL_IDENTITY
from tests.services.faulty_store import CUT, Faulty, before
from tests.services.release.test_publish import client, keys, make_job, start

pytestmark = pytest.mark.slow_s(25)

WEIGHTS, MANIFEST, CONFIG = "adapter_model.safetensors", "manifest.json", "adapter_config.json"
GIVES_UP = Config(retries={"mode": "standard", "total_max_attempts": 2})
"""PATIENT's way of asking again, without its half minute."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    state = tmp_path_factory.mktemp("store")
    yield start(state)
    Processes(state / "services").stop("s3")


@pytest.fixture
def faulty(store: str) -> Iterator[Faulty]:
    s3 = client(store)
    for key in keys(s3):
        s3.delete_object(Bucket=LOCAL_BUCKET, Key=key)
    with before(store) as proxy:
        yield proxy


def through(proxy: Faulty, config: Config) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=proxy.address,
        aws_access_key_id=LOCAL_IDENTITY[0],
        aws_secret_access_key=LOCAL_IDENTITY[1],
        region_name="us-east-1",
        config=config,
    )


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
@pytest.mark.parametrize("fault", ["InternalError", "SlowDown", CUT])
def test_a_store_that_stumbles_is_asked_again_and_has_the_whole_adapter_in_the_end(
    store: str, faulty: Faulty, tmp_path: Path, fault: str, name: str, record_property: Callable[[str, object], None]
) -> None:
    faulty.fault, faulty.wanted, faulty.left = fault, (f"PUT {name}", f"GET {name}"), 2
    began_s = time.monotonic()
    manifest = publish(make_job(tmp_path), through(faulty, PATIENT))
    record_property("recovery_s", time.monotonic() - began_s)
    assert faulty.left == 0
    found = AdapterStore(client(store), f"s3://{LOCAL_BUCKET}/adapters/tiny", "run-a-step-6")
    assert found.exists()
    assert found.manifest() == manifest
    assert len(keys(client(store))) == 3


@pytest.mark.parametrize("name", [WEIGHTS, MANIFEST, CONFIG])
@pytest.mark.parametrize("fault", ["InternalError", "SlowDown", CUT])
def test_a_store_that_stays_bad_fails_with_its_cause_and_leaves_nothing_that_an_endpoint_loads(
    store: str, faulty: Faulty, tmp_path: Path, fault: str, name: str
) -> None:
    faulty.fault, faulty.wanted, faulty.left = fault, (f"PUT {name}",), 10**6
    with pytest.raises(UploadFailed, match="Connection was closed" if fault == CUT else fault):
        publish(make_job(tmp_path), through(faulty, GIVES_UP))
    assert keys(client(store)) == []
    faulty.left = 0
    publish(make_job(tmp_path), through(faulty, GIVES_UP))
    assert len(keys(client(store))) == 3


@pytest.mark.parametrize("fault", ["AccessDenied", "ExpiredToken"])
def test_a_refusal_is_not_asked_again_and_its_cause_outlives_the_removal_that_is_refused_too(
    store: str, faulty: Faulty, tmp_path: Path, fault: str
) -> None:
    names = (WEIGHTS, MANIFEST, CONFIG, "certificate.json")
    faulty.fault, faulty.left = fault, 10**6
    faulty.wanted = (f"PUT {MANIFEST}", *(f"DELETE {name}" for name in names))
    with pytest.raises(UploadFailed, match=rf"{fault}.*PutObject.*check the bucket") as raised:
        publish(make_job(tmp_path), through(faulty, PATIENT))
    assert faulty.asked.count(f"PUT {MANIFEST}") == 1
    assert any("could not be removed" in note for note in raised.value.__cause__.__notes__ or ())  # type: ignore[union-attr]
    # What is left lacks the file by which servers know an adapter.
    assert [key.rpartition("/")[2] for key in keys(client(store))] == [WEIGHTS]
    faulty.left = 0
    publish(make_job(tmp_path), through(faulty, PATIENT))
    assert len(keys(client(store))) == 3
