"""Whose a Ray resource is. A name alone says nothing: another run may train behind it, or somebody who is not us."""

from __future__ import annotations

from typing import Any

from tasks.cluster.kuberay import DIGEST_ANNOTATION
from tasks.cluster.manifests import RUN_LABEL


def run_of(there: dict[str, Any]) -> str:
    """The run that made a RayCluster; empty where no label of ours says so."""
    return there["metadata"].get("labels", {}).get(RUN_LABEL, "")


def whose(there: dict[str, Any]) -> str:
    """The owner of a RayCluster in words."""
    owner = run_of(there)
    return f"run {owner}" if owner else f"nobody of ours (it has no label {RUN_LABEL})"


def is_ours(there: dict[str, Any]) -> bool:
    """Whether this pipeline made the resource, for whichever run."""
    return DIGEST_ANNOTATION in there["metadata"].get("annotations", {})
