"""Whose a Ray resource is. A name alone says nothing: another run may train behind it, or somebody who is not us."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasks.cluster.kuberay import DIGEST_ANNOTATION, ChangedMeanwhile, KubeRay
from tasks.cluster.labels import RUN_LABEL
from tasks.cluster.manifests import FLOW_RUN_ANNOTATION

NOT_THERE = "not there"


@dataclass(frozen=True)
class Owner:
    """Whose a RayCluster is: a run, and the attempt of it that uses it now."""

    run_name: str
    flow_run_id: str = ""
    """Empty where no attempt is meant in particular."""


def flow_run_of(there: dict[str, Any]) -> str:
    """The attempt that used a RayCluster last; empty where nothing says so."""
    return there["metadata"].get("annotations", {}).get(FLOW_RUN_ANNOTATION, "")


def run_of(there: dict[str, Any]) -> str:
    """The run that made a RayCluster; empty where no label of ours says so."""
    return there["metadata"].get("labels", {}).get(RUN_LABEL, "")


def whose(there: dict[str, Any]) -> str:
    """The owner of a RayCluster in words."""
    owner = run_of(there)
    return f"run {owner}" if owner else f"nobody of ours (it has no label {RUN_LABEL})"


def foreign(there: dict[str, Any], owner: Owner) -> str:
    """Why a RayCluster is not this owner's to remove; empty where it is."""
    if run_of(there) != owner.run_name:
        return f"it belongs to {whose(there)}"
    attempt = flow_run_of(there)
    if owner.flow_run_id and attempt not in ("", owner.flow_run_id):
        return f"it belongs to flow run {attempt} now"
    return ""


def is_ours(there: dict[str, Any]) -> bool:
    """Whether this pipeline made the resource, for whichever run."""
    return DIGEST_ANNOTATION in there["metadata"].get("annotations", {})


def settled[T](attempt: Callable[[], T], num_tries: int = 5) -> T:
    """Look, judge and change with nothing of others' in between: what changed meanwhile is looked at again.

    Raises ChangedMeanwhile when it never holds still.
    """
    for _ in range(num_tries - 1):
        try:
            return attempt()
        except ChangedMeanwhile:
            continue
    return attempt()


def delete_unless(kube: KubeRay, kind: str, namespace: str, name: str, judge: Callable[[dict[str, Any]], str]) -> str:
    """Ask for a Ray resource's end: empty when it was asked for, otherwise why not.

    ``judge`` says why what is there has to stay; exactly what it saw is deleted.
    """

    def attempt() -> str:
        there = kube.look(kind, namespace, name)
        if there is None:
            return NOT_THERE
        why = judge(there)
        if not why:
            kube.delete(there)
        return why

    return settled(attempt)
