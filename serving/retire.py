"""Adapters in the object store, found by their run and taken away for good: every version, every unfinished upload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from botocore.exceptions import ClientError
from pydantic import ValidationError

from serving.publish import AdapterStore

NO_SUCH_LISTING = ("NotImplemented", "MethodNotAllowed", "501", "405", "NoSuchUpload")
"""How S3 servers that know no versions or no listing of uploads say so; the last one is rclone's way."""


def adapters_of(s3: Any, adapters_uri: str, run_name: str) -> dict[str, int]:
    """The run's own adapters -> bytes that are paid for, older versions included.

    What is left of one counts too: versions of deleted objects, unfinished uploads. Whose it is says its manifest; the
    name where there is none (any more), which is the run's with ``-step-<n>`` behind it.
    """
    bucket, _, folder = adapters_uri.removeprefix("s3://").partition("/")
    sizes: dict[str, int] = {}
    for key, size_bytes in _everything(s3, bucket, f"{folder}/{run_name}-step-"):
        name = key.removeprefix(f"{folder}/").partition("/")[0]
        sizes[name] = sizes.get(name, 0) + size_bytes
    return {
        name: size for name, size in sizes.items() if _owner(AdapterStore(s3, adapters_uri, name), name) == run_name
    }


def _owner(store: AdapterStore, name: str) -> str:
    try:
        manifest = store.manifest()
    except ValidationError:
        manifest = None
    return manifest.run_name if manifest else name.rpartition("-step-")[0]


def _everything(s3: Any, bucket: str, prefix: str) -> Iterator[tuple[str, int]]:
    """Key and bytes of every object, every version that was kept and every unfinished upload."""
    versions = False
    for page in _pages(s3, "list_object_versions", bucket, prefix):
        versions = True
        yield from ((found["Key"], found["Size"]) for found in page.get("Versions", []))
        yield from ((found["Key"], 0) for found in page.get("DeleteMarkers", []))
    if not versions:
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            yield from ((found["Key"], found["Size"]) for found in page.get("Contents", []))
    yield from ((key, 0) for key, _ in _uploads(s3, bucket, prefix))


def retire(s3: Any, adapters_uri: str, adapter_name: str) -> None:
    """Delete an adapter, first what makes it visible to servers, then older versions and unfinished uploads."""
    AdapterStore(s3, adapters_uri, adapter_name).remove()
    bucket, _, folder = adapters_uri.removeprefix("s3://").partition("/")
    prefix = f"{folder}/{adapter_name}/"
    for key, version in _versions(s3, bucket, prefix):
        s3.delete_object(Bucket=bucket, Key=key, VersionId=version)
    for key, upload in _uploads(s3, bucket, prefix):
        s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)


def _versions(s3: Any, bucket: str, prefix: str) -> list[tuple[str, str]]:
    """What a versioned bucket keeps of deleted objects, their delete markers too."""
    pages = _pages(s3, "list_object_versions", bucket, prefix)
    kinds = ("Versions", "DeleteMarkers")
    return [
        (found["Key"], found["VersionId"])
        for page in pages
        for kind in kinds
        for found in page.get(kind, [])
        # A bucket without versions lists what is there under this id.
        if found["VersionId"] != "null"
    ]


def _uploads(s3: Any, bucket: str, prefix: str) -> list[tuple[str, str]]:
    pages = _pages(s3, "list_multipart_uploads", bucket, prefix)
    return [(found["Key"], found["UploadId"]) for page in pages for found in page.get("Uploads", [])]


def _pages(s3: Any, operation: str, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    """Pages of a listing; none where the store has no such thing, as simple S3 servers do."""
    try:
        yield from s3.get_paginator(operation).paginate(Bucket=bucket, Prefix=prefix)
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") not in NO_SUCH_LISTING:
            raise
