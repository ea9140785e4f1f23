"""What clean-up removes and what it leaves: checkpoints, images, adapters; what it all costs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import boto3
import pytest

from rl.events import Stored, parse_line
from rl.grpo.clean import CleanJob, main
from rl.grpo.config_table import RunDirs
from serving.adapter import Manifest
from serving.publish import AdapterStore
from serving.retire import adapters_of, retire
from tasks.cleanup.clean_up import usd_per_h
from tasks.cleanup.in_aws import Adapters, Images
from tasks.cleanup.in_ray import Checkpoints
from tasks.cleanup.parts import InUse, Leftover, clean
from tasks.errors import AwsRefused
from tasks.image.ecr import Ecr, PushedImage
from tasks.jobs.news import JobNews
from tasks.settings import JobSettings
from tests.moto_server import moto_server
from tests.recording import recording
from tests.unit.cleanup.test_cleanup import silent

URI = "s3://models/adapters/tiny"
OWNERS = {
    "r-step-4": "r",
    "r-step-8": "r",
    "r-2-step-4": "r-2",
    "r-step-lr-step-4": "r-step-lr",
    "r-step-4-step-8": "r-step-4",
    # Published by hand under a name that another run would give.
    "r-step-12": "by-hand",
}
"""Adapter -> the run that its manifest names."""
WHATEVER: Any = {
    "step": 4,
    "base_fingerprint": "",
    "rank": 8,
    "target_modules": (),
    "num_solved": 1,
    "num_mazes": 64,
    "eval_set_sha256": "",
    "mlflow_run_id": "",
    "sha256": {},
}


@pytest.fixture(scope="module")
def s3() -> Any:
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    with moto_server() as url:
        yield boto3.client("s3", endpoint_url=url, **keys)


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> Any:
    """A versioned bucket with two adapters of run r, four of runs named alike, and an upload that nobody finished."""
    s3.create_bucket(Bucket="models")
    s3.put_bucket_versioning(Bucket="models", VersioningConfiguration={"Status": "Enabled"})
    for adapter, run_name in OWNERS.items():
        manifest = Manifest(adapter_name=adapter, run_name=run_name, **WHATEVER).model_dump_json().encode()
        bodies = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"0" * 1000, "manifest.json": manifest}
        for name, body in bodies.items():
            for version in (b"old", body):
                s3.put_object(Bucket="models", Key=f"adapters/tiny/{adapter}/{name}", Body=version)
    s3.create_multipart_upload(Bucket="models", Key="adapters/tiny/r-step-4/adapter_model.safetensors")
    yield s3
    for page in s3.get_paginator("list_object_versions").paginate(Bucket="models"):
        for found in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
            s3.delete_object(Bucket="models", Key=found["Key"], VersionId=found["VersionId"])
    for upload in s3.list_multipart_uploads(Bucket="models").get("Uploads", []):
        s3.abort_multipart_upload(Bucket="models", Key=upload["Key"], UploadId=upload["UploadId"])
    s3.delete_bucket(Bucket="models")


def test_checkpoints_are_measured_removed_and_told_of_and_exports_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dirs = RunDirs(str(tmp_path), "r")
    for folder in (dirs.checkpoints / "global_step_4" / "policy", dirs.exports / "global_step_4"):
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(b"0" * 1000)
    for remove in (False, True, True):
        main(["rl.grpo.clean", CleanJob(shared_dir=str(tmp_path), run_name="r", remove=remove).model_dump_json()])
    told = [event for line in capsys.readouterr().out.splitlines() if isinstance(event := parse_line(line), Stored)]
    assert [(event.path, event.size_bytes, event.removed) for event in told] == [
        (str(dirs.checkpoints), 1000, False),
        (str(dirs.checkpoints), 1000, True),
    ]
    assert (dirs.exports / "global_step_4" / "weights").exists()


def test_checkpoints_that_nobody_can_look_at_are_not_said_to_be_gone() -> None:
    job = JobSettings(project_dir="/opt/maze", python="python")
    part, told = Checkpoints(silent, job, "/shared", JobNews(recording()[0])), list[Leftover]()
    with pytest.raises(ExceptionGroup):
        clean([part], ["checkpoints"], "r", dry_run=False, say=lambda text: None, left=told)
    (left,) = told
    assert (left.name, left.found) == ("/shared/runs/r", "not looked at")
    assert "bring it up (cluster-up)" in left.keep


def test_images_that_pods_run_and_the_newest_ones_stay() -> None:
    class FakeEcr:
        def __init__(self) -> None:
            self.deleted: list[str] = []

        def images(self, repository: str) -> list[PushedImage]:
            return [PushedImage(f"sha256:{n}", 20 * 10**9, datetime(2026, 11, 30 - n)) for n in range(4)]

        def delete(self, repository: str, digest: str) -> None:
            self.deleted.append(f"{repository}@{digest}")

    ecr = FakeEcr()
    part = Images(ecr, ["maze-train"], lambda: {"sha256:2"}, keep_newest=1, usd_per_gb_month=0.1)  # type: ignore[arg-type]
    left = clean([part], ["images"], "r", dry_run=False, say=lambda text: None)
    assert [(thing.name, thing.keep) for thing in left] == [
        ("maze-train@sha256:0", "one of the newest 1"),
        ("maze-train@sha256:2", "pods run it"),
    ]
    assert ecr.deleted == ["maze-train@sha256:1", "maze-train@sha256:3"]
    assert left[0].usd_per_h == pytest.approx(20 * 0.1 / 730, abs=1e-6)


class OneImage:
    """ECR's BatchDeleteImage: 200 whatever became of each image (API reference, ImageFailure)."""

    def __init__(self, *failures: dict[str, str]) -> None:
        self.failures = failures

    def batch_delete_image(self, **asked: Any) -> dict[str, Any]:
        return {"imageIds": [], "failures": list(self.failures)}


def test_an_image_that_ecr_did_not_delete_is_not_counted_as_removed() -> None:
    refers = {"failureCode": "ImageReferencedByManifestList", "failureReason": "an index refers to it"}
    ecr = Ecr("us-east-1", "registry", OneImage(refers))
    with pytest.raises(AwsRefused, match=r"did not delete maze@sha256:1 \(ImageReferencedByManifestList: an index"):
        ecr.delete("maze", "sha256:1")
    Ecr("us-east-1", "registry", OneImage({"failureCode": "ImageNotFound"})).delete("maze", "sha256:1")


def test_adapters_of_the_run_go_with_every_version_and_the_champion_stays(bucket: Any) -> None:
    part = Adapters(bucket, URI, lambda: {"r-step-8": "it is champion"}, 0.023)
    looked = clean([part], [], "r", dry_run=True, say=lambda text: None)
    assert [left.name for left in looked] == ["r-step-4", "r-step-8"]
    for _ in range(2):
        left = clean([part], ["adapters"], "r", dry_run=False, say=lambda text: None)
        assert [(thing.name, thing.keep) for thing in left] == [("r-step-8", "it is champion")]
    prefix = "adapters/tiny/r-step-4/"
    versions = bucket.list_object_versions(Bucket="models", Prefix=prefix)
    assert "Versions" not in versions
    assert "DeleteMarkers" not in versions
    assert "Uploads" not in bucket.list_multipart_uploads(Bucket="models", Prefix=prefix)
    others = [name for run in ("r-2", "r-step-lr", "r-step-4", "by-hand") for name in adapters_of(bucket, URI, run)]
    assert others == ["r-2-step-4", "r-step-lr-step-4", "r-step-4-step-8"]
    kept = bucket.list_objects_v2(Bucket="models", Prefix="adapters/tiny/r-step-12/")["KeyCount"]
    assert kept == 3


def test_what_comes_into_use_between_the_look_and_its_removal_stays(bucket: Any) -> None:
    looks = iter([{}, {"r-step-4": "it is champion"}, {"r-step-4": "it is champion"}])
    adapters, left = Adapters(bucket, URI, lambda: next(looks), 0.023), list[Leftover]()
    with pytest.raises(ExceptionGroup, match="clean-up of r is not complete"):
        clean([adapters], ["adapters"], "r", dry_run=False, say=lambda text: None, left=left)
    assert [thing.name for thing in left] == ["r-step-4"]
    assert "it is champion, since a moment ago" in left[0].keep
    image = Images(Ecr("us-east-1", "registry", OneImage()), [], lambda: {"sha256:1"}, 1, 0.1)
    with pytest.raises(InUse, match="pods run it, since a moment ago"):
        image.remove("r", Leftover(part="images", name="maze@sha256:1"))


def test_an_adapter_that_is_gone_is_retired_already(bucket: Any) -> None:
    retire(bucket, URI, "r-step-4")
    retire(bucket, URI, "r-step-4")
    assert list(adapters_of(bucket, URI, "r")) == ["r-step-8"]


def test_what_is_left_of_an_adapter_is_found_by_its_name(bucket: Any) -> None:
    """A clean-up that was killed behind the first deletions, an upload that was killed before the manifest."""
    AdapterStore(bucket, URI, "r-step-4").remove()
    bucket.put_object(Bucket="models", Key="adapters/tiny/r-step-16/adapter_model.safetensors", Body=b"0" * 10)
    bucket.put_object(Bucket="models", Key="adapters/tiny/r-step-16-step-2/manifest.json", Body=b"torn")
    assert set(adapters_of(bucket, URI, "r")) == {"r-step-4", "r-step-8", "r-step-16"}
    for name in ("r-step-4", "r-step-16"):
        retire(bucket, URI, name)
    assert list(adapters_of(bucket, URI, "r")) == ["r-step-8"]


def test_a_part_that_fails_keeps_none_of_the_others(bucket: Any) -> None:
    class Broken:
        name = "serving"

        def find(self, run_name: str) -> list[Leftover]:
            raise PermissionError("denied")

        def unseen(self, run_name: str) -> list[Leftover]:
            return [Leftover(part="serving", name="s")]

    adapters = Adapters(bucket, URI, dict, 0.023)
    with pytest.raises(ExceptionGroup, match="clean-up of r is not complete; run it again"):
        clean([Broken(), adapters], ["adapters"], "r", dry_run=False, say=lambda text: None)  # type: ignore[list-item]
    assert adapters.find("r") == []


def test_pods_are_not_paid_for_twice() -> None:
    pods = [Leftover(part="training", name="c", usd_per_h=36.61), Leftover(part="adapters", name="a", usd_per_h=0.01)]
    assert usd_per_h(pods) == pytest.approx(36.62)
    machines = [Leftover(part="machines", name="gpu", usd_per_h=31.08)]
    assert usd_per_h(pods + machines) == pytest.approx(31.09)
