"""A RayService that is suspended while a run trains on its machines, and brought back with the same champion.

Whose training it makes room for, and since when, stands on the RayService itself: a flow whose process died cannot
say it. Who is champion is no part of it (serving/champion.py): the endpoint finds it again by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tasks.cluster.kuberay import KubeRay
from tasks.cluster.owners import Owner, settled
from tasks.cluster.ray_settings import RayOnKubernetes
from tasks.errors import ClusterNotReady

BY, ATTEMPT, SINCE = (f"maze-retrain/suspended-{what}" for what in ("by", "flow-run", "since"))
NO_MARKS = {BY: None, ATTEMPT: None, SINCE: None}
Now = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


def is_suspended(service: dict[str, Any]) -> bool:
    return bool(service["spec"].get("suspend"))


def since_of(service: dict[str, Any] | None) -> str:
    """Since when a run of ours has it away; empty where none has."""
    return service["metadata"].get("annotations", {}).get(SINCE, "") if service else ""


def marks_of(service: dict[str, Any] | None) -> dict[str, str]:
    """Since when and for whom the endpoint is away: what is made in this service's place goes on saying it."""
    marks = service["metadata"].get("annotations", {}) if service else {}
    return {mark: marks[mark] for mark in NO_MARKS if mark in marks}


def suspended_by(service: dict[str, Any]) -> Owner:
    """The run that serving makes room for; an empty name where it is nobody of ours."""
    marks = service["metadata"].get("annotations", {})
    return Owner(marks.get(BY, ""), marks.get(ATTEMPT, ""))


def require_suspendable(kube: KubeRay, settings: RayOnKubernetes) -> None:
    """Raises ClusterNotReady where KubeRay's CRD does not know the field: the API server would drop it silently."""

    def attempt() -> bool:
        there = kube.look("RayService", settings.namespace, settings.serve_name)
        return there is None or is_suspended(kube.change(there, {"spec": {"suspend": True}}, dry_run=True))

    if not settled(attempt):
        raise ClusterNotReady(
            f"RayService {settings.namespace}/{settings.serve_name} cannot be suspended: the installed KubeRay has no "
            "spec.suspend (it came with 1.7); update operator and CRDs, or give serving machines of its own "
            "(hosting.serving.kind: own)"
        )


def suspend(kube: KubeRay, settings: RayOnKubernetes, owner: Owner, now: Now) -> bool:
    """Take the endpoint away for this owner's training; False where there is none. A second call changes nothing.

    Raises ClusterNotReady where it is away for another run: whoever marks it last would bring it back under the other.
    """

    def attempt() -> bool:
        there = kube.look("RayService", settings.namespace, settings.serve_name)
        if there is None:
            return False
        by = suspended_by(there) if is_suspended(there) else Owner("", "")
        if by.run_name not in ("", owner.run_name) and not settings.take_over:
            raise ClusterNotReady(
                f"RayService {settings.namespace}/{settings.serve_name} is suspended since {since_of(there)} for run "
                f"{by.run_name}; wait for its end, clean up after it (cleanup, part training), or set hosting.take_over"
            )
        since = since_of(there) if is_suspended(there) else ""
        if by == owner and since:
            return True
        marks = {BY: owner.run_name, ATTEMPT: owner.flow_run_id, SINCE: since or now().isoformat(timespec="seconds")}
        kube.change(there, {"metadata": {"annotations": marks}, "spec": {"suspend": True}})
        return True

    return settled(attempt)


def resume(kube: KubeRay, settings: RayOnKubernetes) -> str:
    """Bring the endpoint back; returns since when it was away, empty where it was not.

    The marks stay until ``forget``: an attempt that dies while the endpoint comes up leaves them to the next.
    """

    def attempt() -> str:
        there = kube.look("RayService", settings.namespace, settings.serve_name)
        if there is not None and is_suspended(there):
            kube.change(there, {"spec": {"suspend": False}})
        return since_of(there)

    return settled(attempt)


def forget(kube: KubeRay, settings: RayOnKubernetes) -> None:
    """The endpoint is back: nothing on it speaks of a training any more."""

    def attempt() -> None:
        there = kube.look("RayService", settings.namespace, settings.serve_name)
        if there is not None and since_of(there) and not is_suspended(there):
            kube.change(there, {"metadata": {"annotations": NO_MARKS}})

    settled(attempt)


def lift(kube: KubeRay, settings: RayOnKubernetes, keeps: Callable[[dict[str, Any]], str]) -> None:
    """Bring the endpoint back and forget for whom it was away, in one write, unless ``keeps`` has a reason."""

    def attempt() -> None:
        there = kube.look("RayService", settings.namespace, settings.serve_name)
        if there is not None and is_suspended(there) and not keeps(there):
            kube.change(there, {"metadata": {"annotations": NO_MARKS}, "spec": {"suspend": False}})

    settled(attempt)


def away_s(since: str, now: Now) -> float:
    """Seconds from then until now; 0 where nobody noted the beginning."""
    try:
        return (now() - datetime.fromisoformat(since)).total_seconds()
    except ValueError:
        return 0.0
