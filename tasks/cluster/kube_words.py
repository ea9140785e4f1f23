"""What the Kubernetes API's answers say: refusals, pods, nodes, events. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from kubernetes.client.exceptions import ApiException

from tasks.cluster.labels import HEALTH_LABEL
from tasks.cluster.placement import Held, Room, amount_of, requests_of

UNFIT = "the document does not fit the CRD: compare the KubeRay versions of operator and pipeline"
IDENTITY_ENV = {"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}


@dataclass(frozen=True)
class NodeHealth:
    """A Kubernetes node as schedulers see it."""

    name: str
    is_ready: bool
    health: str
    """Schedulable, Unschedulable, UnschedulablePendingReplacement, UnschedulablePendingReboot or not labelled."""
    num_gpus: int
    """GPUs that pods can ask for."""


@dataclass(frozen=True)
class KubeEvent:
    """What somebody of the cluster said about a resource."""

    is_warning: bool
    reason: str
    message: str

    @property
    def is_final(self) -> bool:
        """Whether nothing will come of the resource as it is.

        KubeRay says so and does not look at it again (ray-operator, rayclusters' and rayservices' controllers, after
        ValidateRayClusterMetadata and its like; a wrong status alone is looked at again).
        """
        return re.fullmatch(r"InvalidRay(Cluster|Service)(Spec|Metadata)", self.reason) is not None

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


def is_absent(error: BaseException | None) -> bool:
    """Whether this 404 is about the thing: one without the CRD, or from a proxy, says nothing of it.

    The API server answers with a Status whose details name the resource (apimachinery, errors.NewNotFound); where it
    does not serve the group at all, with plain text (apiserver, http.NotFound).
    """
    if not isinstance(error, ApiException) or error.status != 404:
        return False
    said = _status(error)
    return said.get("reason") == "NotFound" and bool(said.get("details", {}).get("name"))


def _status(error: ApiException) -> dict[str, Any]:
    """The API server's own answer, or nothing where somebody else answered."""
    try:
        said = json.loads(error.body or "{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def refusal(error: ApiException) -> str:
    said = _status(error).get("message", "")
    remedies = {
        400: UNFIT,
        404: "is the KubeRay operator installed, and is hosting.namespace right?",
        401: "the credentials have expired: log in again",
        403: "grant the identity docker/role.yaml or role-kuberay.yaml, an EKS access entry with it on HyperPod",
        409: "someone else changed it meanwhile: run again",
        422: UNFIT,
    }
    remedy = remedies.get(error.status or 0, "see the API server's message")
    return f"the Kubernetes API answered {error.status} {error.reason}: {said or 'no message'}; {remedy}"


def admission_word(workloads: list[dict[str, Any]], uid: str) -> str:
    """What Kueue says of the Workload that it made for an object (its condition QuotaReserved); empty where nothing."""
    for workload in workloads:
        owners = [owner["uid"] for owner in workload["metadata"].get("ownerReferences") or []]
        if uid not in owners:
            continue
        for condition in (workload.get("status") or {}).get("conditions") or []:
            if condition["type"] == "QuotaReserved" and condition["status"] != "True":
                return condition.get("message") or condition.get("reason") or ""
    return ""


def trouble(pod: Any) -> str:
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


def has_identity(pod: Any) -> bool:
    named = {variable.name for container in pod.spec.containers for variable in container.env or []}
    return named >= IDENTITY_ENV


def health(node: Any) -> NodeHealth:
    conditions = {condition.type: condition.status for condition in node.status.conditions or []}
    return NodeHealth(
        name=node.metadata.name,
        is_ready=conditions.get("Ready") == "True",
        health=(node.metadata.labels or {}).get(HEALTH_LABEL, "not labelled"),
        num_gpus=int((node.status.allocatable or {}).get("nvidia.com/gpu", 0)),
    )


def room(node: dict[str, Any], pods: list[dict[str, Any]]) -> Room:
    """A node as the scheduler sees it, with the pods that hold a part of it; one that has ended holds nothing."""
    name, spec = node["metadata"]["name"], node.get("spec") or {}
    conditions = {each["type"]: each["status"] for each in (node.get("status") or {}).get("conditions") or []}
    unusable = "it is cordoned" if spec.get("unschedulable") else ""
    if conditions.get("Ready") != "True":
        unusable = "it is not ready"
    held = tuple(
        Held(
            f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}",
            _cluster_of(pod["metadata"]),
            requests_of(pod["spec"]),
        )
        for pod in pods
        if pod["spec"].get("nodeName") == name and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    )
    offers = amount_of((node.get("status") or {}).get("allocatable") or {})
    labels = node["metadata"].get("labels") or {}
    return Room(name, labels, offers, held, tuple(spec.get("taints") or ()), unusable)


def _cluster_of(pod: dict[str, Any]) -> str:
    """Namespace and name of the RayCluster that a pod belongs to (KubeRay's label); empty for every other pod."""
    name = (pod.get("labels") or {}).get("ray.io/cluster", "")
    return f"{pod.get('namespace', '')}/{name}" if name else ""


def event(found: Any) -> KubeEvent:
    """An event of the core API."""
    return KubeEvent(found.type == "Warning", found.reason or "", found.message or "")
