"""A Kubernetes API on loopback, as far as the pipeline speaks it: custom objects, service accounts, pods, nodes.

A created RayCluster becomes ready step by step, one step each time it is looked at, as a script says; deletion takes
one more look. Every change that clients ask for is recorded, and refused where the schemas that it knows say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.simulated_cluster.loopback import on_loopback
from tests.simulated_cluster.schemas import admitted, require_known
from tests.simulated_cluster.world import Refused

COLLECTION = re.compile(r"^/(?:api/v1|apis/ray\.io/v1)/namespaces/([^/]+)/([^/]+)$")
OPERATOR = "1.7"
ITEM = re.compile(r"^/(?:api/v1|apis/ray\.io/v1)/namespaces/([^/]+)/([^/]+)/([^/]+)$")


def condition(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, **more}


READY = {
    "observedGeneration": 1,
    "availableWorkerReplicas": 3,
    "conditions": [condition("HeadPodReady"), condition("RayClusterProvisioned")],
}


class FakeKubernetes:
    """State and script of one API server."""

    def __init__(self) -> None:
        self.things: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.changes: list[str] = []
        self.pods: list[dict[str, Any]] = []
        self.successors: list[dict[str, Any]] = []
        """Pods that take a deleted one's place, one each."""
        self.others: list[dict[str, Any]] = []
        """Pods of other namespaces, or of no RayCluster."""
        self.nodes: list[dict[str, Any]] = []
        self.script: list[dict[str, Any]] = []
        """Status of a RayCluster at each look after its creation; the last one stays."""
        self.service_status: dict[str, Any] = {}
        """Status of a RayService from its first look on."""
        self.refusal: tuple[int, str, str] | None = None
        """Status, reason and message of the answer to everything."""
        self.operator_runs = True
        self.denied: set[str] = set()
        """What the identity may not do, such as ``create rayclusters``."""
        self.events: list[dict[str, Any]] = []
        self.may_read_events = True
        self.created: Callable[[], object] | None = None
        """What the operator does about a new Ray resource."""
        self.workloads: list[dict[str, Any]] = []
        """Kueue's, of every namespace."""
        self._leaving: set[tuple[str, str, str]] = set()
        self._number = 0
        self.meanwhile: Callable[[], object] | None = None
        """What somebody else does just before the next change arrives."""

    def tell(self, key: tuple[str, str, str], reason: str, message: str, uid: str = "", type: str = "Warning") -> None:
        """An event of a resource that is there (core/v1, Event), or of an earlier one of that name."""
        about = {"name": key[2], "namespace": key[0], "uid": uid or self.things[key]["metadata"]["uid"]}
        when = f"2026-11-30T02:00:{len(self.events):02}Z"
        told = {"type": type, "reason": reason, "message": message, "involvedObject": about, "lastTimestamp": when}
        self.events.append({"metadata": {"name": f"e-{len(self.events)}"}, **told})

    def _changed(self, thing: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        thing["metadata"]["resourceVersion"] = str(self._number)
        return thing

    def _somebody_else(self) -> None:
        act, self.meanwhile = self.meanwhile, None
        if act:
            act()

    def there(self, key: tuple[str, str, str]) -> dict[str, Any]:
        if key not in self.things:
            raise Refused(404, "NotFound", f'{key[1]} "{key[2]}" not found', key[2])
        return self.things[key]

    def as_seen(self, key: tuple[str, str, str], uid: str | None, version: str | None) -> dict[str, Any]:
        """The thing, if it is still the one that the client saw (apiserver, registry/store.go: Conflict, 409)."""
        metadata = self.there(key)["metadata"]
        if uid not in (None, metadata["uid"]) or version not in (None, metadata["resourceVersion"]):
            raise Refused(409, "Conflict", "the object has been modified", key[2])
        return self.things[key]

    def clear(self) -> None:
        """No resource, and nothing known of any."""
        self.things.clear()
        self._leaving.clear()
        self.changes.clear()

    def get(self, key: tuple[str, str, str]) -> dict[str, Any] | None:
        thing = self.things.get(key)
        if thing is None:
            return None
        if key in self._leaving and self.operator_runs:
            self._leaving.discard(key)
            # Seen once more, then it is gone.
            return self.things.pop(key)
        if key[1] == "rayservices":
            thing["status"] = self.service_status
        if key[1] == "rayclusters" and self.script:
            thing["status"] = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return thing

    def create(self, namespace: str, plural: str, body: dict[str, Any]) -> dict[str, Any]:
        self._somebody_else()
        name = body["metadata"]["name"]
        if (namespace, plural, name) in self.things:
            raise Refused(409, "AlreadyExists", f'{plural} "{name}" already exists', name)
        self.changes.append(f"create {plural} {namespace}/{name}")
        body["metadata"] |= {"generation": 1, "uid": f"u-{self._number}"}
        self.things[(namespace, plural, name)] = self._changed(body)
        if self.created and plural in ("rayclusters", "rayservices"):
            self.created()
        return body

    def patch(self, key: tuple[str, str, str], body: dict[str, Any]) -> dict[str, Any]:
        self._somebody_else()
        there = self.as_seen(key, None, body["metadata"].get("resourceVersion"))
        self.changes.append(f"patch {key[1]} {key[0]}/{key[2]}")
        # Only another spec makes another generation.
        generation = there["metadata"]["generation"] + (body.get("spec", there.get("spec")) != there.get("spec"))
        metadata = {**there["metadata"], **body["metadata"], "generation": generation}
        self.things[key] = self._changed({**there, **body, "metadata": metadata})
        return self.things[key]

    def delete(self, key: tuple[str, str, str], options: dict[str, Any]) -> dict[str, Any]:
        self._somebody_else()
        policy, exactly = options.get("propagationPolicy"), options.get("preconditions", {})
        if key[1] != "pods":
            self.as_seen(key, exactly.get("uid"), exactly.get("resourceVersion"))
        self.changes.append(f"delete {key[1]} {key[0]}/{key[2]}" + (f" {policy}" if policy else ""))
        if key[1] == "pods":
            (gone,) = [pod for pod in self.pods if pod["metadata"]["name"] == key[2]]
            self.pods = [pod for pod in self.pods if pod is not gone] + self.successors[:1]
            self.successors = self.successors[1:]
            return gone
        self._leaving.add(key)
        return self._changed(self.things[key])


GROUPS = {"ml.r5d.16xlarge": "head", "ml.g7e.12xlarge": "gpu-workers", "ml.m5.2xlarge": "serve-head"}
GROUPS["ml.g7e.2xlarge"] = "serve-gpu"
SIZES = {
    "ml.r5d.16xlarge": (62, 490),
    "ml.g7e.12xlarge": (46, 490),
    "ml.m5.2xlarge": (7, 28),
    "ml.g7e.2xlarge": (7, 57),
}


def node(name: str, instance_type: str, gpus: int, health: str = "Schedulable", ready: str = "True") -> dict[str, Any]:
    """A Kubernetes node as HyperPod labels it."""
    labels = {
        "node.kubernetes.io/instance-type": instance_type,
        "sagemaker.amazonaws.com/instance-group-name": GROUPS[instance_type],
        "sagemaker.amazonaws.com/node-health-status": health,
    }
    cpus, memory_gib = SIZES[instance_type]
    allocatable = {"cpu": str(cpus), "memory": f"{memory_gib}Gi", "nvidia.com/gpu": str(gpus)}
    status = {"conditions": [{"type": "Ready", "status": ready}], "allocatable": allocatable}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def pod(name: str, identity: bool = True) -> dict[str, Any]:
    """A running pod, admitted after its Pod Identity association or before it."""
    names = ["AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] if identity else []
    env = [{"name": variable, "value": "v"} for variable in names]
    spec = {"containers": [{"name": "ray", "image": "i", "env": env}]}
    return {"metadata": {"name": name}, "spec": spec, "status": {}}


def _handler(fake: FakeKubernetes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _body(self) -> dict[str, Any]:
            return json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")

        def _serve(self) -> None:
            try:
                status, document = self._answered()
            except Refused as refused:
                status, document = refused.code, refused.body
            self._answer(status, document)

        def _answered(self) -> tuple[int, dict[str, Any]]:
            parts = urlsplit(self.path)
            body, query = self._body(), parse_qs(parts.query)
            strict = query.get("fieldValidation") == ["Strict"]
            if fake.refusal:
                raise Refused(*fake.refusal)
            if parts.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
                asked = body["spec"]["resourceAttributes"]
                allowed = f"{asked['verb']} {asked['resource']}" not in fake.denied
                return 201, {"kind": "SelfSubjectAccessReview", "spec": body["spec"], "status": {"allowed": allowed}}
            if parts.path.endswith("/events"):
                if fake.may_read_events:
                    uid = (
                        parse_qs(parts.query)["fieldSelector"][0].partition("involvedObject.uid=")[2].partition(",")[0]
                    )
                    return 200, {
                        "kind": "EventList",
                        "items": [e for e in fake.events if e["involvedObject"]["uid"] == uid],
                    }
                raise Refused(403, "Forbidden", "events is forbidden")
            if parts.path == "/apis/kueue.x-k8s.io/v1beta1/namespaces/maze/workloads":
                return 200, {"kind": "WorkloadList", "items": fake.workloads}
            if parts.path.startswith("/apis/kueue.x-k8s.io/"):
                raise Refused(404, "NotFound", "404 page not found")
            if parts.path == "/api/v1/nodes":
                wanted = query.get("labelSelector", [""])[0].partition("=")[2]
                nodes = [n for n in fake.nodes if not wanted or wanted in n["metadata"]["labels"].values()]
                return 200, {"kind": "NodeList", "items": nodes}
            if parts.path == "/api/v1/pods":
                return 200, {"kind": "PodList", "items": fake.pods + fake.others}
            if match := COLLECTION.match(parts.path):
                namespace, plural = match.groups()
                if self.command == "POST":
                    admitted(plural, body, OPERATOR, strict)
                    return 201, fake.create(namespace, plural, body)
                return 200, {"kind": "PodList", "items": fake.pods}
            match = ITEM.match(parts.path)
            assert match, parts.path
            namespace, plural, name = match.groups()
            key = (namespace, plural, name)
            if self.command == "GET":
                return 200, fake.get(key) or fake.there(key)
            if self.command == "PATCH":
                if strict:
                    require_known(plural, body, OPERATOR)
                return 200, fake.patch(key, body)
            return 200, fake.delete(key, body)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server's names

    return Handler


@contextmanager
def kubernetes_api(folder: Path) -> Iterator[tuple[FakeKubernetes, str]]:
    """The server and a kubeconfig that leads to it."""
    fake = FakeKubernetes()
    with on_loopback(folder, _handler(fake)) as kubeconfig:
        yield fake, kubeconfig
