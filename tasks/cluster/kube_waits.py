"""Waiting for what KubeRay makes: when it is ready, what it lacks, when it is gone. Time is an argument."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tasks.cluster.kube_words import KubeEvent
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.labels import QUEUE_LABEL
from tasks.errors import ClusterNotReady, KubernetesRefused, RolloutFailed


def cluster_shortfall(cluster: dict[str, Any], num_workers: int) -> str:
    """What a RayCluster lacks to be ready; empty when it is.

    Ready means: the operator has seen this generation, head pod and all workers are up (KubeRay's conditions
    HeadPodReady and RayClusterProvisioned).
    """
    status, metadata = cluster.get("status", {}), cluster["metadata"]
    if cluster.get("spec", {}).get("suspend"):
        queue = metadata.get("labels", {}).get(QUEUE_LABEL)
        if queue:
            return f"it waits in Kueue's queue {queue} and has no pods until it is let in"
        return "it is suspended (spec.suspend), and no queue of Kueue is named that would let it in"
    if status.get("observedGeneration") != metadata.get("generation"):
        return "the operator has not taken it up yet; does it run?"
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    failure = conditions.get("ReplicaFailure", {})
    if failure.get("status") == "True":
        return f"pods cannot be made: {failure.get('reason')}: {failure.get('message')}"
    for name in ("HeadPodReady", "RayClusterProvisioned"):
        condition = conditions.get(name, {"status": "Unknown"})
        if condition["status"] != "True":
            return (
                f"{name} is {condition['status']}: {condition.get('message') or condition.get('reason') or 'no word'}"
            )
    available = status.get("availableWorkerReplicas", 0)
    return "" if available >= num_workers else f"{available} of {num_workers} workers are there"


def _warnings(kube: KubeRay, there: dict[str, Any] | None) -> list[KubeEvent]:
    """Warnings about a resource, each once. Who may not read events still waits, and is told so."""
    if there is None:
        return []
    try:
        told = kube.events(there)
    except KubernetesRefused as refused:
        return [KubeEvent(True, "its events cannot be read", str(refused))]
    return list(dict.fromkeys(event for event in told if event.is_warning))


def wait_for_cluster(
    kube: KubeRay,
    namespace: str,
    name: str,
    num_workers: int,
    timeout_s: float,
    poll_s: float,
    say: Callable[[str], object],
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until a RayCluster is ready; raises ClusterNotReady with the pods' own words.

    A cluster that vanishes meanwhile was pre-empted or deleted: task governance takes it away head and all.
    """
    deadline, said, seen = clock() + timeout_s, "", False
    while True:
        cluster = kube.look("RayCluster", namespace, name)
        if cluster is None and seen:
            raise ClusterNotReady(f"RayCluster {namespace}/{name} vanished: pre-empted or deleted; run again")
        seen = seen or cluster is not None
        lacks = cluster_shortfall(cluster, num_workers) if cluster else "it does not exist"
        if not lacks:
            return
        warnings = _warnings(kube, cluster)
        if final := [warning for warning in warnings if warning.is_final]:
            raise ClusterNotReady(f"RayCluster {namespace}/{name} will not come up: {final[-1]}; correct hosting")
        troubles = kube.pod_troubles(namespace, name)
        if cluster and cluster.get("spec", {}).get("suspend") and (word := kube.queue_word(cluster)):
            troubles.insert(0, word)
        state = "; ".join([lacks, *troubles, *map(str, warnings)])
        if clock() >= deadline:
            raise ClusterNotReady(
                f"RayCluster {namespace}/{name} is not ready after {timeout_s:g} s: {state}; correct what the pods "
                "say, or give it more time (hosting.ready_timeout_s)"
            )
        if state != said:
            say(f"RayCluster {namespace}/{name}: {state}")
            said = state
        sleep(poll_s)


def wait_until_gone(
    kube: KubeRay,
    kind: str,
    namespace: str,
    name: str,
    timeout_s: float,
    poll_s: float,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until a deleted resource is gone; raises ClusterNotReady when it stays."""
    deadline = clock() + timeout_s
    while (there := kube.look(kind, namespace, name)) is not None:
        if clock() >= deadline:
            said = "; ".join(map(str, _warnings(kube, there)))
            raise ClusterNotReady(
                f"{kind} {namespace}/{name} is still there {timeout_s:g} s after its deletion; the KubeRay operator "
                f"must run for it to end: look at its pods{f' ({said})' if said else ''}"
            )
        sleep(poll_s)


def wait_until_suspended(
    kube: KubeRay,
    namespace: str,
    name: str,
    timeout_s: float,
    poll_s: float,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until a RayService's pods are gone (KubeRay's condition Suspended); raises ClusterNotReady."""
    deadline = clock() + timeout_s
    while True:
        service = kube.look("RayService", namespace, name) or {}
        conditions = {each["type"]: each["status"] for each in service.get("status", {}).get("conditions", [])}
        if conditions.get("Suspended") == "True" or not service:
            return
        if clock() >= deadline:
            raise ClusterNotReady(
                f"RayService {namespace}/{name} is not suspended after {timeout_s:g} s; the KubeRay operator must run "
                "for its pods to go: look at them"
            )
        sleep(poll_s)


def wait_for_identity(
    kube: KubeRay,
    namespace: str,
    cluster: str,
    timeout_s: float,
    poll_s: float,
    say: Callable[[str], object],
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Make pods again that were admitted before their AWS identity was there; a restart would not help them.

    Raises ClusterNotReady when their successors have none either.
    """
    early = sorted(kube.pods_without_identity(namespace, cluster))
    for pod in early:
        say(f"pod {pod} was made before its AWS identity: it is made again")
        kube.delete_pod(namespace, pod)
    deadline = clock() + timeout_s
    while early and (without := kube.pods_without_identity(namespace, cluster)):
        if set(without) - set(early) or clock() >= deadline:
            raise ClusterNotReady(
                f"pods of {namespace}/{cluster} have no AWS identity, made anew or not: {', '.join(without)}; is the "
                "add-on eks-pod-identity-agent active, and do association and service account agree?"
            )
        sleep(poll_s)


def service_state(service: dict[str, Any], app_name: str) -> tuple[str, str]:
    """An application's status on a RayService and what was said about it; NOT_STARTED before there is one.

    While a cluster is being made the application stands under ``pendingServiceStatus``.
    """
    status = service.get("status", {})
    for stage in ("activeServiceStatus", "pendingServiceStatus"):
        application = (status.get(stage) or {}).get("applicationStatuses", {}).get(app_name)
        if application:
            parts = application.get("serveDeploymentStatuses", {})
            said = [f"{name}: {part['message']}" for name, part in parts.items() if part.get("message")]
            words = "; ".join(filter(None, [application.get("message", ""), *said]))
            # A pending cluster's application does not answer clients yet.
            running = application["status"] == "RUNNING" and stage == "pendingServiceStatus"
            return ("DEPLOYING" if running else application["status"]), words
    return "NOT_STARTED", ""


def wait_for_service(
    kube: KubeRay,
    namespace: str,
    name: str,
    app_name: str,
    timeout_s: float,
    poll_s: float,
    say: Callable[[str], object],
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until a RayService's application runs; raises RolloutFailed with the replicas' or the pods' own words."""
    deadline, said = clock() + timeout_s, ""
    while True:
        service = kube.look("RayService", namespace, name) or {}
        state, words = service_state(service, app_name)
        if state == "RUNNING":
            return
        cluster = cluster_of(service)
        troubles = kube.pod_troubles(namespace, cluster) if cluster else []
        warnings = _warnings(kube, service or None)
        if final := [warning for warning in warnings if warning.is_final]:
            raise RolloutFailed(f"RayService {namespace}/{name} will not come up: {final[-1]}; correct hosting")
        behind = kube.look("RayCluster", namespace, cluster) if cluster else None
        said_of = map(str, [*warnings, *_warnings(kube, behind)])
        news = "; ".join(filter(None, [f"application {app_name} is {state}", words, *troubles, *said_of]))
        if state == "DEPLOY_FAILED" or clock() >= deadline:
            late = "" if state == "DEPLOY_FAILED" else f" after {timeout_s:g} s"
            raise RolloutFailed(f"RayService {namespace}/{name}: {news}{late}; look at its pods' logs")
        if news != said:
            say(f"RayService {namespace}/{name}: {news}")
            said = news
        sleep(poll_s)


def cluster_of(service: dict[str, Any]) -> str:
    """Name of the RayCluster behind a RayService; empty before there is one."""
    status = service.get("status", {})
    for stage in ("activeServiceStatus", "pendingServiceStatus"):
        if name := (status.get(stage) or {}).get("rayClusterName"):
            return name
    return ""
