"""Publishing to a real S3 endpoint (rclone on loopback): order, immutability, nothing left after a failure."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from botocore.exceptions import ClientError
from safetensors.numpy import save_file

from serving.adapter import AdapterRejected, Manifest
from serving.publish import AdapterNameTaken, PublishJob, UploadFailed, publish
from serving.retire import adapters_of, retire
from tasks.local.process import Processes
from tasks.local.services import LOCAL_BUCKET, LOCAL_IDENTITY, Layout, LocalServices

PROJECT = Path(__file__).parents[3]
MODULE = "model.language_model.layers.0.self_attn.q_proj"


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address of the project's own S3 service, and the state folder it can be started on again."""
    state = tmp_path / "state"
    yield start(state), state
    Processes(state / "services").stop("s3")


def start(state: Path) -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    service = LocalServices(Layout(PROJECT, state), print)._s3(port)
    Processes(state / "services").start(service)
    return f"http://127.0.0.1:{port}"


def client(address: str, secret: str = LOCAL_IDENTITY[1]) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=address,
        aws_access_key_id=LOCAL_IDENTITY[0],
        aws_secret_access_key=secret,
        region_name="us-east-1",
    )


def make_job(folder: Path, scale: float = 1.0, name: str = "run-a-step-6") -> PublishJob:
    adapter, base = folder / f"adapter-{scale}", folder / "base"
    for path in (adapter, base):
        path.mkdir(exist_ok=True)
    save_file({f"{MODULE}.weight": np.ones((6, 4), np.float32)}, base / "model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    sides = {"A": np.ones((2, 4), np.float32), "B": np.full((6, 2), scale, np.float32)}
    tensors = {f"base_model.model.{MODULE}.lora_{side}.weight": tensor for side, tensor in sides.items()}
    save_file(tensors, adapter / "adapter_model.safetensors")
    return PublishJob(
        adapter_dir=str(adapter),
        base_dir=str(base),
        adapters_uri=f"s3://{LOCAL_BUCKET}/adapters/tiny",
        adapter_name=name,
        max_lora_rank=8,
        serves_tower_lora=False,
        run_name="run-a",
        step=6,
        num_solved=40,
        num_mazes=64,
        eval_set_sha256="e" * 64,
        mlflow_run_id="m",
    )


class Recording:
    """A client that notes what is written, and fails where it is told to."""

    def __init__(self, s3: Any, fails_at: str = "") -> None:
        self._s3, self._fails_at = s3, fails_at
        self.written: list[str] = []

    def put_object(self, **kwargs: Any) -> Any:
        name = kwargs["Key"].rsplit("/", 1)[1]
        if name == self._fails_at:
            raise ClientError({"Error": {"Code": "SlowDown", "Message": "busy"}}, "PutObject")
        self.written.append(name)
        return self._s3.put_object(**kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._s3, name)


def keys(s3: Any) -> list[str]:
    return sorted(entry["Key"] for entry in s3.list_objects_v2(Bucket=LOCAL_BUCKET).get("Contents", []))


def test_the_configuration_that_makes_an_adapter_visible_is_written_last(
    endpoint: tuple[str, Path], tmp_path: Path
) -> None:
    s3 = Recording(client(endpoint[0]))
    manifest = publish(make_job(tmp_path), s3)
    assert s3.written == ["adapter_model.safetensors", "manifest.json", "adapter_config.json"]
    key = "adapters/tiny/run-a-step-6/manifest.json"
    stored = Manifest.model_validate_json(s3.get_object(Bucket=LOCAL_BUCKET, Key=key)["Body"].read())
    assert stored == manifest
    assert (stored.rank, stored.target_modules, stored.step, stored.num_solved) == (2, ("q_proj",), 6, 40)


def test_the_same_adapter_again_changes_nothing_and_another_one_is_refused(
    endpoint: tuple[str, Path], tmp_path: Path
) -> None:
    s3 = Recording(client(endpoint[0]))
    first = publish(make_job(tmp_path), s3)
    written = list(s3.written)
    assert publish(make_job(tmp_path), s3) == first
    with pytest.raises(AdapterNameTaken, match="servers cache by name"):
        publish(make_job(tmp_path, scale=2.0), s3)
    assert s3.written == written
    publish(make_job(tmp_path, scale=2.0, name="run-a-step-9"), s3)


@pytest.mark.parametrize("fails_at", ["adapter_model.safetensors", "manifest.json", "adapter_config.json"])
def test_a_failed_upload_leaves_nothing_and_can_be_repeated(
    endpoint: tuple[str, Path], tmp_path: Path, fails_at: str
) -> None:
    s3 = client(endpoint[0])
    with pytest.raises(UploadFailed, match=r"run-a-step-6: .*SlowDown.*check the bucket"):
        publish(make_job(tmp_path), Recording(s3, fails_at))
    assert keys(s3) == []
    publish(make_job(tmp_path), s3)
    assert len(keys(s3)) == 3


def test_a_bad_adapter_is_stopped_before_the_first_byte(endpoint: tuple[str, Path], tmp_path: Path) -> None:
    s3 = Recording(client(endpoint[0]))
    with pytest.raises(AdapterRejected, match="every lora_B is zero"):
        publish(make_job(tmp_path, scale=0.0), s3)
    assert s3.written == []


def test_a_wrong_identity_is_told_apart(endpoint: tuple[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UploadFailed, match="SignatureDoesNotMatch"):
        publish(make_job(tmp_path), client(endpoint[0], secret="not it"))


def test_the_local_endpoint_keeps_its_objects_across_a_restart(endpoint: tuple[str, Path], tmp_path: Path) -> None:
    publish(make_job(tmp_path), client(endpoint[0]))
    Processes(endpoint[1] / "services").stop("s3")
    assert len(keys(client(start(endpoint[1])))) == 3


def test_a_retired_adapter_is_gone_and_twice_is_harmless(endpoint: tuple[str, Path], tmp_path: Path) -> None:
    job, s3 = make_job(tmp_path), client(endpoint[0])
    publish(job, s3)
    other = make_job(tmp_path, name="run-a-step-6-step-1").model_copy(update={"run_name": "run-a-step-6"})
    publish(other, s3)
    for _ in range(2):
        retire(s3, job.adapters_uri, job.adapter_name)
        assert adapters_of(s3, job.adapters_uri, "run-a") == {}
        assert list(adapters_of(s3, job.adapters_uri, "run-a-step-6")) == ["run-a-step-6-step-1"]
