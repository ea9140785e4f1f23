"""KubeRay through the Kubernetes API: the one owner of the Kubernetes client.

A resource is found by its name: applying the same document twice changes nothing, deleting what is gone is done. The
connection comes from a kubeconfig of one's own, never from whatever context happens to be current.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from tasks.clients.retry import PATIENT_READS
from tasks.cluster.kube_words import (
    KubeEvent,
    NodeHealth,
    admission_word,
    event,
    has_identity,
    health,
    is_absent,
    refusal,
    room,
    trouble,
)
from tasks.cluster.placement import Room
from tasks.errors import KubernetesRefused, KubernetesUnreachable

DIGEST_ANNOTATION = "maze-retrain/sha256"
"""Over the document that was applied: the API server fills in defaults, so a resource cannot be compared with it."""
PODS_ANNOTATION = "maze-retrain/pods-sha256"
"""Over the pods of a RayService or a RayCluster alone."""
STRICT = {"field_validation": "Strict"}
"""A field that the API server does not know is refused; it would be dropped without a word otherwise."""
KUEUE_VERSIONS = ("v1beta2", "v1beta1")
RAY_KINDS = {"RayCluster": "rayclusters", "RayService": "rayservices"}
Applied = Literal["created", "changed", "unchanged"]


class ChangedMeanwhile(KubernetesRefused):
    """Somebody else changed, made or removed the resource between the look and the change."""


class KubeRay:
    """Raises KubernetesUnreachable when nobody answers, KubernetesRefused when the API server says no."""

    def __init__(self, kubeconfig: str, context: str = "", timeout_s: float = 30.0) -> None:
        """Without a kubeconfig it is the cluster whose pod this process runs in, as the pod's service account."""
        api = _connected(kubeconfig, context)
        self._timeout_s = timeout_s
        self._objects, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)
        self._access = client.AuthorizationV1Api(api)

    def look(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """The resource as the API server has it, or None."""
        if kind == "ServiceAccount":
            found = self._find(self._core.read_namespaced_service_account, name, namespace)
            plain: Any = client.ApiClient().sanitize_for_serialization(found)
            return plain
        return self._find(self._objects.get_namespaced_custom_object, "ray.io", "v1", namespace, RAY_KINDS[kind], name)

    def apply(
        self, manifest: dict[str, Any], seen: dict[str, Any] | None = None, more_marks: Mapping[str, str] | None = None
    ) -> Applied:
        """Create the resource, or bring it to this document; raises ChangedMeanwhile where it is no longer as seen.

        Without ``seen`` it is looked at here. ``more_marks`` are annotations that are no part of what is wanted.
        """
        kind, metadata = manifest["kind"], manifest["metadata"]
        digest = _digest(manifest)
        marks = {**(more_marks or {}), DIGEST_ANNOTATION: digest}
        if kind in RAY_KINDS:
            marks[PODS_ANNOTATION] = _digest(_pods_of(manifest))
        marked = {**manifest, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **marks}}}
        there = seen or self.look(kind, metadata["namespace"], metadata["name"])
        if there is None:
            self._create(kind, metadata["namespace"], marked)
            return "created"
        if there["metadata"].get("annotations", {}).get(DIGEST_ANNOTATION) == digest:
            return "unchanged"
        marked["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
        if kind == "RayCluster" and self.same_pods(there, manifest):
            # Kueue has put its machines' labels into the pods of a cluster that it let in: they stay.
            del marked["spec"]
        self._patch(kind, metadata["namespace"], metadata["name"], marked)
        return "changed"

    def same_pods(self, there: dict[str, Any], wanted: dict[str, Any]) -> bool:
        """Whether a Ray resource was applied with these pods: KubeRay never changes pods that run."""
        return there["metadata"].get("annotations", {}).get(PODS_ANNOTATION) == _digest(_pods_of(wanted))

    def delete(self, seen: dict[str, Any]) -> None:
        """Ask for the end of a Ray resource as it was seen, what it owns first; one that is gone is done.

        Raises ChangedMeanwhile where another took its place or somebody else's label was put on it.
        """
        metadata = seen["metadata"]
        exactly = client.V1Preconditions(uid=metadata["uid"], resource_version=metadata["resourceVersion"])
        self._find(
            self._objects.delete_namespaced_custom_object,
            "ray.io",
            "v1",
            metadata["namespace"],
            RAY_KINDS[seen["kind"]],
            metadata["name"],
            body=client.V1DeleteOptions(preconditions=exactly, propagation_policy="Foreground"),
        )

    def pod_troubles(self, namespace: str, cluster: str) -> list[str]:
        """Why pods of a RayCluster do not run, in Kubernetes' words; empty when all do."""
        return [
            f"pod {pod.metadata.name}: {why}"
            for pod in self._pods(namespace, cluster)
            if (why := trouble(pod) or self._last_warning(pod))
        ]

    def pods_without_identity(self, namespace: str, cluster: str) -> list[str]:
        """Pods of a RayCluster that were admitted before their Pod Identity association was there."""
        return [pod.metadata.name for pod in self._pods(namespace, cluster) if not has_identity(pod)]

    def delete_pod(self, namespace: str, name: str) -> None:
        """Ask for a pod's end; its RayCluster makes another."""
        self._find(self._core.delete_namespaced_pod, name, namespace)

    def nodes(self, instance_type: str) -> list[NodeHealth]:
        """The Kubernetes nodes of one instance type."""
        label = f"node.kubernetes.io/instance-type={instance_type}"
        found = self._ask(self._core.list_node, label_selector=label)
        return [health(node) for node in found.items]

    def rooms(self) -> list[Room]:
        """Every node with what is free of it; pods of all namespaces count."""
        nodes, pods = self._ask(self._core.list_node), self._ask(self._core.list_pod_for_all_namespaces)
        plain: Any = client.ApiClient().sanitize_for_serialization([nodes.items, pods.items])
        return [room(node, plain[1]) for node in plain[0]]

    def change(self, seen: dict[str, Any], patch: dict[str, Any], dry_run: bool = False) -> dict[str, Any]:
        """Merge ``patch`` into a Ray resource as it was seen; returns what the API server makes of it.

        Raises ChangedMeanwhile. With ``dry_run`` nothing is changed: what comes back would be there, without the fields
        that the API server does not know.
        """
        metadata = {**patch.get("metadata", {}), "resourceVersion": seen["metadata"]["resourceVersion"]}
        name, namespace = seen["metadata"]["name"], seen["metadata"]["namespace"]
        call, plural = self._objects.patch_namespaced_custom_object, RAY_KINDS[seen["kind"]]
        more: dict[str, Any] = {"dry_run": "All"} if dry_run else STRICT
        return self._ask(call, "ray.io", "v1", namespace, plural, name, {**patch, "metadata": metadata}, **more)

    def events(self, seen: dict[str, Any]) -> list[KubeEvent]:
        """What was said about exactly this Ray resource, the oldest first."""
        metadata = seen["metadata"]
        return self._events(metadata["namespace"], metadata["name"], metadata["uid"])

    def queue_word(self, seen: dict[str, Any]) -> str:
        """Why Kueue does not let this RayCluster in, in its words; empty where it says nothing, or not to us."""
        for version in KUEUE_VERSIONS:
            with suppress(KubernetesRefused):
                found = self._ask(
                    self._objects.list_namespaced_custom_object,
                    "kueue.x-k8s.io",
                    version,
                    seen["metadata"]["namespace"],
                    "workloads",
                )
                return admission_word(found["items"], seen["metadata"]["uid"])
        return ""

    def may(self, verb: str, group: str, resource: str, namespace: str) -> bool:
        """Whether this identity may do that; the API server itself says so. Nodes have no namespace: empty."""
        asked = client.V1ResourceAttributes(group=group, resource=resource, verb=verb, namespace=namespace)
        review = client.V1SelfSubjectAccessReview(spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=asked))
        return bool(self._ask(self._access.create_self_subject_access_review, review).status.allowed)

    def _events(self, namespace: str, name: str, uid: str) -> list[KubeEvent]:
        about = f"involvedObject.uid={uid},involvedObject.name={name}"
        found = self._ask(self._core.list_namespaced_event, namespace, field_selector=about)
        return [event(told) for told in sorted(found.items, key=lambda told: str(told.last_timestamp or ""))]

    def _last_warning(self, pod: Any) -> str:
        """What was last wrong with a pod that is being made: a volume that cannot be mounted is told nowhere else."""
        if pod.status.phase != "Pending":
            return ""
        try:
            told = self._events(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        except KubernetesRefused:
            # That events cannot be read is told of the resource that the pod belongs to.
            return ""
        return next((str(event) for event in reversed(told) if event.is_warning), "")

    def _pods(self, namespace: str, cluster: str) -> list[Any]:
        pods = self._ask(self._core.list_namespaced_pod, namespace, label_selector=f"ray.io/cluster={cluster}")
        return pods.items

    def _create(self, kind: str, namespace: str, document: dict[str, Any]) -> None:
        if kind == "ServiceAccount":
            self._ask(self._core.create_namespaced_service_account, namespace, document, **STRICT)
        else:
            create = self._objects.create_namespaced_custom_object
            self._ask(create, "ray.io", "v1", namespace, RAY_KINDS[kind], document, **STRICT)

    def _patch(self, kind: str, namespace: str, name: str, document: dict[str, Any]) -> None:
        if kind == "ServiceAccount":
            self._ask(self._core.patch_namespaced_service_account, name, namespace, document, **STRICT)
        else:
            patch = self._objects.patch_namespaced_custom_object
            self._ask(patch, "ray.io", "v1", namespace, RAY_KINDS[kind], name, document, **STRICT)

    def _find(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """One request for a thing of this name; None where the API server says that it is not there."""
        try:
            return self._ask(call, *args, **kwargs)
        except KubernetesRefused as refused:
            if is_absent(refused.__cause__):
                return None
            raise

    def _ask(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs, _request_timeout=self._timeout_s)
        except ApiException as error:
            refused = ChangedMeanwhile if error.status == 409 else KubernetesRefused
            raise refused(refusal(error)) from error
        except HTTPError as error:
            raise KubernetesUnreachable(
                f"the Kubernetes API does not answer ({error}); check the network, and that the cluster runs"
            ) from error


def _connected(kubeconfig: str, context: str) -> client.ApiClient:
    how = client.Configuration()
    how.retries = PATIENT_READS
    try:
        if kubeconfig:
            return config.new_client_from_config(kubeconfig, context or None, client_configuration=how)
        config.load_incluster_config(client_configuration=how)
        return client.ApiClient(how)
    except (config.ConfigException, FileNotFoundError) as error:
        named = f"{kubeconfig}{f', context {context},' if context else ''} gives no connection"
        where = named if kubeconfig else "hosting.kubeconfig is empty, and this process runs in no pod of a cluster"
        raise KubernetesUnreachable(
            f"{where} ({error}); name a file in hosting.kubeconfig (on EKS `aws eks update-kubeconfig --kubeconfig` "
            "writes one) and its hosting.context"
        ) from error


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _pods_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """What a Ray resource's pods are made of; a RayService has its application beside it."""
    spec = manifest["spec"]
    return spec.get("rayClusterConfig", spec)
