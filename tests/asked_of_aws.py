"""Every operation that this project's own code asks of AWS while tests run, held against its roles' policies.

botocore itself tells of them, before it builds the request. Who asked is told by the stack: the innermost file of
tasks/ or serving/; what a test asks for itself does not count.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import botocore.handlers

ROOT = Path(__file__).resolve().parents[1]
POLICIES = ROOT / "docker" / "iam"
S3_ACTIONS = {
    "HeadObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
    "ListObjectVersions": "s3:ListBucketVersions",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
}
"""Where the permission has another name than the operation (Service Authorization Reference, Amazon S3)."""
ROLES: Sequence[tuple[str, tuple[str, ...]]] = (
    ("tasks/", ("worker",)),
    ("serving/retire.py", ("worker",)),
    # Asked by the orchestrator (certificates, the champion, readiness) and on the clusters (publishing, the ingress).
    ("serving/", ("worker", "pods")),
)


def action_of(service: str, operation: str, arguments: Mapping[str, Any]) -> str:
    """The permission that an operation takes."""
    if service == "s3" and operation == "DeleteObject" and arguments.get("VersionId"):
        return "s3:DeleteObjectVersion"
    return S3_ACTIONS.get(operation, f"s3:{operation}") if service == "s3" else f"{service}:{operation}"


def roles_of(path: str) -> tuple[str, ...]:
    return next((roles for prefix, roles in ROLES if path.startswith(prefix)), ())


def granted(role: str) -> set[str]:
    """The actions of a role's policy, each by its full name."""
    document = json.loads((POLICIES / f"{role}.json").read_text())
    return {action for statement in document["Statement"] for action in statement["Action"]}


class NotGranted(AssertionError):
    """The code asked for what its role may not."""


def _asker() -> str:
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT) and path.parts[len(ROOT.parts)] in ("tasks", "serving", "tests"):
            found = path.relative_to(ROOT).as_posix()
            if found != "tests/asked_of_aws.py":
                return found
        frame = frame.f_back
    return ""


LACKING: list[str] = []
"""What was asked since somebody looked and no policy grants."""


def hear(params: Mapping[str, Any], model: Any, **_: Any) -> None:
    """One operation is about to be asked."""
    service, path = model.service_model.service_name, _asker()
    action = action_of(service, model.name, params)
    LACKING.extend(
        f"{path} asks for {action}, which docker/iam/{role}.json does not grant"
        for role in roles_of(path)
        if action not in granted(role)
    )


def install() -> None:
    """Every session that is made from now on tells."""
    entry = ("before-parameter-build", hear)
    if entry not in botocore.handlers.BUILTIN_HANDLERS:
        botocore.handlers.BUILTIN_HANDLERS.append(entry)


def require_granted() -> None:
    """Raises NotGranted with what was asked in vain; the list is empty afterwards."""
    lacking, LACKING[:] = sorted(set(LACKING)), []
    if lacking:
        raise NotGranted("\n".join(lacking))
