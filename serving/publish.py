"""Ray job entry point: check an adapter and put it where Ray Serve LLM reads it (``python -m serving.publish JSON``).

It runs on the cluster that trained, because only there the export's folder exists, and with the job's own AWS
identity. Layout and order (weights, manifest, ``adapter_config.json`` last) follow what Ray Serve LLM does: it takes
an adapter to exist when its ``adapter_config.json`` does.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel, ConfigDict, Field

from serving.adapter import Manifest, ServerLimits, base_fingerprint, check_adapter, file_sha256
from serving.files import CERTIFICATE, CONFIG, MANIFEST, WEIGHTS
from serving.store import got, in_words, s3_client


class AdapterNameTaken(RuntimeError):
    """Another adapter lies under this name, and names are immutable."""


class ExportChanged(RuntimeError):
    """The export's files are not the ones that training wrote."""


class UploadFailed(RuntimeError):
    """The object store did not take the adapter; nothing is left that a server could pick up."""


class PublishJob(BaseModel):
    """What the job's command line carries."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    adapter_dir: str
    base_dir: str
    adapters_uri: str = Field(pattern=r"^s3://[^/]+/.*[^/]$")
    """Folder of all adapters of this base model, for example ``s3://models/adapters/qwen3-vl-8b``."""
    adapter_name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,127}$")
    max_lora_rank: int
    serves_tower_lora: bool
    run_name: str
    step: int
    num_solved: int
    num_mazes: int
    eval_set_sha256: str
    mlflow_run_id: str
    export_sha256: dict[str, str] = Field(default={})
    """File name -> SHA-256 as training told it; empty where nobody did."""


def publish(job: PublishJob, s3: Any) -> Manifest:
    """Check, upload, verify; a second call with the same bytes changes nothing.

    Raises ExportChanged and AdapterRejected before anything is uploaded, AdapterNameTaken and UploadFailed.
    """
    manifest = make_manifest(job)
    store = AdapterStore(s3, job.adapters_uri, job.adapter_name)
    try:
        known = store.manifest()
        if known is not None and store.exists():
            if known.sha256 != manifest.sha256:
                raise AdapterNameTaken(
                    f"{store.uri} holds adapter {known.adapter_sha256[:12]} of step {known.step}, this one is "
                    f"{manifest.adapter_sha256[:12]} of step {manifest.step}; servers cache by name, so publish under "
                    "another name"
                )
            return known
        store.upload(Path(job.adapter_dir), manifest)
    except (BotoCoreError, ClientError) as error:
        raise UploadFailed(
            f"{store.uri}: {in_words(error)}; check the bucket, the endpoint and the job's AWS identity"
        ) from error
    return manifest


def make_manifest(job: PublishJob) -> Manifest:
    """Check the adapter and describe it; raises ExportChanged and AdapterRejected."""
    folder, base = Path(job.adapter_dir), Path(job.base_dir)
    check_unchanged(folder, job.export_sha256)
    config = check_adapter(folder, base, ServerLimits(job.max_lora_rank, job.serves_tower_lora))
    targets = config.get("target_modules") or ()
    return Manifest(
        adapter_name=job.adapter_name,
        run_name=job.run_name,
        step=job.step,
        base_fingerprint=base_fingerprint(base),
        rank=config["r"],
        target_modules=(targets,) if isinstance(targets, str) else tuple(sorted(targets)),
        num_solved=job.num_solved,
        num_mazes=job.num_mazes,
        eval_set_sha256=job.eval_set_sha256,
        mlflow_run_id=job.mlflow_run_id,
        sha256={name: file_sha256(folder / name) for name in (CONFIG, WEIGHTS)},
    )


def check_unchanged(folder: Path, wanted: Mapping[str, str]) -> None:
    """Compare the export with what training told of it; raises ExportChanged naming every file that differs."""
    found = {name: file_sha256(folder / name) if (folder / name).is_file() else "" for name in wanted}
    if changed := [name for name in wanted if found[name] != wanted[name]]:
        told = ", ".join(f"{name} is {found[name][:12] or 'gone'}, was {wanted[name][:12]}" for name in changed)
        raise ExportChanged(
            f"{folder}: {told} when training exported it; restore the folder, or train again from the checkpoint before"
        )


class AdapterStore:
    """One adapter's place in the object store."""

    def __init__(self, s3: Any, adapters_uri: str, adapter_name: str) -> None:
        self._s3 = s3
        self._bucket, _, prefix = adapters_uri.removeprefix("s3://").partition("/")
        self._folder = f"{prefix}/{adapter_name}"
        self.uri = f"{adapters_uri}/{adapter_name}"

    def exists(self) -> bool:
        """Whether a server would find it."""
        return self._get(CONFIG) is not None

    def manifest(self) -> Manifest | None:
        document = self._get(MANIFEST)
        return None if document is None else Manifest.model_validate_json(document)

    def upload(self, folder: Path, manifest: Manifest) -> None:
        """Weights, manifest, then the configuration that makes it visible; each is read back and compared."""
        try:
            self._put(WEIGHTS, (folder / WEIGHTS).read_bytes(), manifest.sha256[WEIGHTS])
            document = manifest.model_dump_json(indent=1).encode()
            self._put(MANIFEST, document, hashlib.sha256(document).hexdigest())
            self._put(CONFIG, (folder / CONFIG).read_bytes(), manifest.sha256[CONFIG])
        except BaseException as error:
            self._take_back(error)
            raise

    def _take_back(self, because: BaseException) -> None:
        """Remove what was uploaded. What came first is what is told: a removal that fails, too, is a note on it."""
        try:
            self.remove()
        except (BotoCoreError, ClientError) as error:
            because.add_note(f"what was uploaded to {self.uri} could not be removed: {in_words(error)}")

    def remove(self) -> None:
        """Delete the adapter, first the configuration that makes it visible."""
        for name in (CONFIG, CERTIFICATE, MANIFEST, WEIGHTS):
            self._s3.delete_object(Bucket=self._bucket, Key=f"{self._folder}/{name}")

    def certificate(self) -> bytes | None:
        return self._get(CERTIFICATE)

    def put_certificate(self, document: str) -> None:
        """Keep the evidence beside the adapter; servers do not read it."""
        body = document.encode()
        self._put(CERTIFICATE, body, hashlib.sha256(body).hexdigest())

    def _put(self, name: str, body: bytes, sha256: str) -> None:
        if hashlib.sha256(body).hexdigest() != sha256:
            raise UploadFailed(f"{name} changed while it was published; is training still writing to this folder?")
        self._s3.put_object(Bucket=self._bucket, Key=f"{self._folder}/{name}", Body=body)
        arrived = self._get(name) or b""
        if hashlib.sha256(arrived).hexdigest() != sha256:
            raise UploadFailed(
                f"{self.uri}/{name} arrived with other bytes than were sent ({len(arrived)} of {len(body)})"
            )

    def _get(self, name: str) -> bytes | None:
        return got(self._s3, self._bucket, f"{self._folder}/{name}")


def try_store(s3: Any, adapters_uri: str, name: str) -> str:
    """Ask the store everything that publishing, promoting and serving ask of it; returns the URI that was tried.

    A small object beside the adapters, where no server looks, is looked for before it is there, written, read, listed
    and deleted. Raises UploadFailed with what the object store said.
    """
    bucket, _, folder = adapters_uri.removeprefix("s3://").partition("/")
    key, body = f"{folder}.probe-{name}", name.encode()
    uri = f"s3://{bucket}/{key}"
    try:
        s3.delete_object(Bucket=bucket, Key=key)
        if got(s3, bucket, key) is not None:
            raise UploadFailed(f"{uri} is there although it was deleted; is another run of this name being checked?")
        s3.put_object(Bucket=bucket, Key=key, Body=body)
        read = got(s3, bucket, key) or b""
        listed = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", [])]
        s3.delete_object(Bucket=bucket, Key=key)
    except (BotoCoreError, ClientError) as error:
        raise UploadFailed(f"{uri}: {in_words(error)}") from error
    if read != body:
        raise UploadFailed(f"{uri}: {len(body)} bytes were written and {len(read)} other ones read")
    if key not in listed:
        raise UploadFailed(f"{uri} was written and is not in the bucket's list; servers would not find adapters")
    return uri


def main(argv: list[str]) -> None:
    job = PublishJob.model_validate_json(argv[1])
    try:
        publish(job, s3_client())
    except Exception as error:
        fault = {"kind": "fault", "boundary": type(error).__name__, "message": str(error), "fatal": True}
        sys.stdout.write(f"@event {json.dumps(fault)}\n")
        raise


if __name__ == "__main__":
    main(sys.argv)
