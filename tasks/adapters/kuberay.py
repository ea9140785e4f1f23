"""KubeRay through the Kubernetes API: the one owner of the Kubernetes client.

A resource is found by its name: applying the same document twice changes nothing, deleting what is gone is done. The
connection comes from a kubeconfig of one's own, never from whatever context happens to be current.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any, Literal

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from tasks.adapters import ClusterNotReady, KubernetesRefused, KubernetesUnreachable

DIGEST_ANNOTATION = "maze-retrain/sha256"
"""Over the document that was applied: the API server fills in defaults, so a resource cannot be compared with it."""
RAY_KINDS = {"RayCluster": "rayclusters", "RayService": "rayservices"}
Applied = Literal["created", "changed", "unchanged"]


class KubeRay:
    """Raises KubernetesUnreachable when nobody answers, KubernetesRefused when the API server says no."""

    def __init__(self, kubeconfig: str, context: str | None = None, timeout_s: float = 30.0) -> None:
        try:
            api = config.new_client_from_config(config_file=kubeconfig, context=context)
        except (config.ConfigException, FileNotFoundError) as error:
            raise KubernetesUnreachable(
                f"{kubeconfig} gives no connection ({error}); write one with `aws eks update-kubeconfig --kubeconfig`"
            ) from error
        self._timeout_s = timeout_s
        self._objects, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)

    def look(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """The resource as the API server has it, or None."""
        if kind == "ServiceAccount":
            found = self._ask(self._core.read_namespaced_service_account, name, namespace)
            plain: Any = client.ApiClient().sanitize_for_serialization(found)
            return plain
        return self._ask(self._objects.get_namespaced_custom_object, "ray.io", "v1", namespace, RAY_KINDS[kind], name)

    def apply(self, manifest: dict[str, Any]) -> Applied:
        """Create the resource, or bring it to this document."""
        kind, metadata = manifest["kind"], manifest["metadata"]
        digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        marked = {**manifest, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {})}}}
        marked["metadata"]["annotations"][DIGEST_ANNOTATION] = digest
        there = self.look(kind, metadata["namespace"], metadata["name"])
        if there is None:
            self._create(kind, metadata["namespace"], marked)
            return "created"
        if there["metadata"].get("annotations", {}).get(DIGEST_ANNOTATION) == digest:
            return "unchanged"
        self._patch(kind, metadata["namespace"], metadata["name"], marked)
        return "changed"

    def delete(self, kind: str, namespace: str, name: str) -> bool:
        """Ask for a resource's end, what it owns first; False when there was none."""
        if self.look(kind, namespace, name) is None:
            return False
        if kind == "ServiceAccount":
            self._ask(self._core.delete_namespaced_service_account, name, namespace)
        else:
            self._ask(
                self._objects.delete_namespaced_custom_object,
                "ray.io",
                "v1",
                namespace,
                RAY_KINDS[kind],
                name,
                propagation_policy="Foreground",
            )
        return True

    def pod_troubles(self, namespace: str, cluster: str) -> list[str]:
        """Why pods of a RayCluster do not run, in Kubernetes' words; empty when all do."""
        pods = self._ask(self._core.list_namespaced_pod, namespace, label_selector=f"ray.io/cluster={cluster}")
        return [f"pod {pod.metadata.name}: {why}" for pod in (pods.items if pods else []) if (why := _trouble(pod))]

    def _create(self, kind: str, namespace: str, document: dict[str, Any]) -> None:
        if kind == "ServiceAccount":
            self._ask(self._core.create_namespaced_service_account, namespace, document)
        else:
            create = self._objects.create_namespaced_custom_object
            self._ask(create, "ray.io", "v1", namespace, RAY_KINDS[kind], document)

    def _patch(self, kind: str, namespace: str, name: str, document: dict[str, Any]) -> None:
        if kind == "ServiceAccount":
            self._ask(self._core.patch_namespaced_service_account, name, namespace, document)
        else:
            patch = self._objects.patch_namespaced_custom_object
            self._ask(patch, "ray.io", "v1", namespace, RAY_KINDS[kind], name, document)

    def _ask(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """One request; None for 404."""
        try:
            return call(*args, **kwargs, _request_timeout=self._timeout_s)
        except ApiException as error:
            if error.status == 404:
                return None
            raise KubernetesRefused(_refusal(error)) from error
        except HTTPError as error:
            raise KubernetesUnreachable(
                f"the Kubernetes API does not answer ({error}); check the network and `aws eks describe-cluster`"
            ) from error


def _refusal(error: ApiException) -> str:
    try:
        said = json.loads(error.body or "{}").get("message", "")
    except ValueError:
        said = ""
    remedies = {
        401: "the credentials have expired: log in again",
        403: "grant the identity an EKS access entry with the HyperPod training policy in this namespace",
        409: "someone else changed it meanwhile: run again",
        422: "the document does not fit the CRD: compare the KubeRay versions of operator and pipeline",
    }
    remedy = remedies.get(error.status or 0, "see the API server's message")
    return f"the Kubernetes API answered {error.status} {error.reason}: {said or 'no message'}; {remedy}"


def _trouble(pod: Any) -> str:
    for status in pod.status.container_statuses or []:
        waiting = status.state.waiting if status.state else None
        if waiting and waiting.reason not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting.reason}: {waiting.message or 'no message'}"
        ended = status.state.terminated if status.state else None
        if ended and ended.exit_code:
            return f"{status.name} ended with {ended.exit_code} ({ended.reason})"
    for condition in pod.status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason}: {condition.message}"
    return ""


def cluster_shortfall(cluster: dict[str, Any], num_workers: int) -> str:
    """What a RayCluster lacks to be ready; empty when it is.

    Ready means: the operator has seen this generation, head pod and all workers are up (KubeRay's conditions
    HeadPodReady and RayClusterProvisioned).
    """
    status, metadata = cluster.get("status", {}), cluster["metadata"]
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
        troubles = kube.pod_troubles(namespace, name)
        state = "; ".join([lacks, *troubles])
        if clock() >= deadline:
            raise ClusterNotReady(
                f"RayCluster {namespace}/{name} is not ready after {timeout_s:g} s: {state}; correct what the pods "
                "say, or give it more time (hyperpod.ready_timeout_s)"
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
    while kube.look(kind, namespace, name) is not None:
        if clock() >= deadline:
            raise ClusterNotReady(
                f"{kind} {namespace}/{name} is still there {timeout_s:g} s after its deletion; the KubeRay operator "
                "must run for it to end: look at its pods"
            )
        sleep(poll_s)
