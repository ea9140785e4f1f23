"""Publishing and retiring adapters, cut at every outside call, on moto's S3 with and without versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import numpy as np
import pytest
from safetensors.numpy import save_file

from serving.publish import AdapterStore, PublishJob, publish
from serving.retire import adapters_of, retire
from tests.every_cut import every_cut
from tests.moto_server import moto_server

pytestmark = pytest.mark.slow_s(45)
MODULE = "model.language_model.layers.0.self_attn.q_proj"


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    identity = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    with moto_server() as url:
        client = boto3.client("s3", endpoint_url=url, **identity)
        for bucket in ("plain", "versioned"):
            client.create_bucket(Bucket=bucket)
        client.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
        yield client


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> PublishJob:
    folder = tmp_path_factory.mktemp("export")
    adapter, base = folder / "adapter", folder / "base"
    adapter.mkdir()
    base.mkdir()
    save_file({f"{MODULE}.weight": np.ones((6, 4), np.float32)}, base / "model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    sides = {"A": np.ones((2, 4), np.float32), "B": np.ones((6, 2), np.float32)}
    tensors = {f"base_model.model.{MODULE}.lora_{side}.weight": tensor for side, tensor in sides.items()}
    save_file(tensors, adapter / "adapter_model.safetensors")
    return PublishJob(
        adapter_dir=str(adapter),
        base_dir=str(base),
        adapters_uri="s3://models/adapters/tiny",
        adapter_name="r-step-4",
        max_lora_rank=8,
        serves_tower_lora=False,
        run_name="r",
        step=4,
        num_solved=40,
        num_mazes=64,
        eval_set_sha256="e" * 64,
        mlflow_run_id="m",
    )


class Folder:
    """A place in a bucket that no trial had before."""

    count = 0

    def __init__(self, s3: Any, bucket: str, order: PublishJob) -> None:
        Folder.count += 1
        self.s3, self.bucket, self.uri = s3, bucket, f"s3://{bucket}/adapters-{Folder.count}/tiny"
        self.order = order.model_copy(update={"adapters_uri": self.uri})
        self.prefix = f"adapters-{Folder.count}/"

    def objects(self) -> dict[str, str]:
        """What servers see."""
        page = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix)
        return {found["Key"].removeprefix(self.prefix): found["ETag"] for found in page.get("Contents", [])}


class Publishes(Folder):
    def run(self) -> None:
        publish(self.order, self.s3)

    def state(self) -> dict[str, str]:
        return self.objects()


class Retires(Folder):
    """The adapter of one run, beside one of another and an upload that nobody finished."""

    def __init__(self, s3: Any, bucket: str, order: PublishJob) -> None:
        super().__init__(s3, bucket, order)
        publish(self.order, s3)
        AdapterStore(s3, self.uri, "r-step-4").put_certificate("{}")
        publish(self.order.model_copy(update={"adapter_name": "r-step-4-step-2", "run_name": "r-step-4"}), s3)
        key = f"{self.prefix}tiny/r-step-4/adapter_model.safetensors"
        s3.create_multipart_upload(Bucket=bucket, Key=key)

    def run(self) -> None:
        for name in adapters_of(self.s3, self.uri, "r"):
            retire(self.s3, self.uri, name)

    def state(self) -> dict[str, Any]:
        versions = self.s3.list_object_versions(Bucket=self.bucket, Prefix=self.prefix)
        kept = [found["Key"] for kind in ("Versions", "DeleteMarkers") for found in versions.get(kind, [])]
        uploads = self.s3.list_multipart_uploads(Bucket=self.bucket, Prefix=self.prefix).get("Uploads", [])
        return {"kept": sorted(key.removeprefix(self.prefix) for key in kept), "uploads": len(uploads)}


def whole_or_not_at_all(trial: Folder) -> None:
    """Whenever servers can see the adapter, all of it is there."""
    there = {key.rpartition("/")[2] for key in trial.objects()}
    assert "adapter_config.json" not in there or {"adapter_model.safetensors", "manifest.json"} <= there


@pytest.mark.parametrize("bucket", ["plain", "versioned"])
def test_publishing_ends_with_the_same_objects_wherever_it_was_cut(s3: Any, order: PublishJob, bucket: str) -> None:
    cuts = every_cut(lambda: Publishes(s3, bucket, order), always=whole_or_not_at_all)
    assert sum(call.startswith("PUT") for call in cuts.calls) == 3


@pytest.mark.parametrize("bucket", ["plain", "versioned"])
def test_retiring_leaves_nothing_of_this_run_and_all_of_the_other_wherever_it_was_cut(
    s3: Any, order: PublishJob, bucket: str
) -> None:
    # A broken connection is another matter than an end only where something is tried again: once is enough.
    every_cut(lambda: Retires(s3, bucket, order), ways=("killed", "failed") if bucket == "plain" else ("killed",))
    trial = Retires(s3, bucket, order)
    trial.run()
    names = ("adapter_config.json", "adapter_model.safetensors", "manifest.json")
    assert trial.state() == {"kept": [f"tiny/r-step-4-step-2/{name}" for name in names], "uploads": 0}
