"""What the API server takes: Kubernetes' own schemas for pods and accounts, KubeRay's fields for its two kinds.

``KUBERAY`` is this project's own short form of KubeRay's CRDs (v1.7.0, commit 59d663aeec13760646da3db9c1cf8cfe883e30b7,
ray-operator/apis/ray/v1): the names and types of the fields around the pods. The pod template's inside is left out
there: it is checked as a pod.
"""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import kubernetes_validate
from jsonschema import Draft202012Validator

from tests.simulated_cluster.world import Refused

VERSION = "1.34"
TEXT, FLAG, WHOLE = {"type": "string"}, {"type": "boolean"}, {"type": "integer"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _fields(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


HEAD = _fields(
    ["template"],
    template=ANY,
    rayStartParams=TEXTS,
    resources=TEXTS,
    labels=TEXTS,
    headService=ANY,
    enableIngress=FLAG,
    serviceType=TEXT,
)
WORKERS = _fields(
    ["groupName", "maxReplicas", "minReplicas", "template"],
    template=ANY,
    groupName=TEXT,
    replicas=WHOLE,
    minReplicas=WHOLE,
    maxReplicas=WHOLE,
    numOfHosts=WHOLE,
    idleTimeoutSeconds=WHOLE,
    suspend=FLAG,
    rayStartParams=TEXTS,
    resources=TEXTS,
    labels=TEXTS,
    scaleStrategy=ANY,
)
CLUSTER = _fields(
    ["headGroupSpec"],
    rayVersion=TEXT,
    enableInTreeAutoscaling=FLAG,
    suspend=FLAG,
    managedBy=TEXT,
    headGroupSpec=HEAD,
    workerGroupSpecs={"type": "array", "items": WORKERS},
    headServiceAnnotations=TEXTS,
    autoscalerOptions=ANY,
    gcsFaultToleranceOptions=ANY,
    authOptions=ANY,
    upgradeStrategy=ANY,
    networkPolicy=ANY,
)
SERVICE = _fields(
    ["rayClusterConfig"],
    rayClusterConfig=CLUSTER,
    serveConfigV2=TEXT,
    upgradeStrategy=_fields([], type=TEXT, clusterUpgradeOptions=ANY),
    rayClusterDeletionDelaySeconds={"type": "integer", "minimum": 0},
    serveService=ANY,
    excludeHeadPodFromServeSvc=FLAG,
    managedBy=TEXT,
    suspend=FLAG,
)
KUBERAY = {"rayclusters": CLUSTER, "rayservices": SERVICE}


def admitted(plural: str, document: dict[str, Any], operator: str, strict: bool = False) -> dict[str, Any]:
    """The document as the API server keeps it; raises Refused (422).

    Unknown fields are dropped without a word, or refused (Kubernetes, "Server-side field validation": fieldValidation).
    """
    found = copy.deepcopy(document)
    if plural not in KUBERAY:
        _core(found)
        return found
    schema = _schema(plural, operator)
    errors = sorted(Draft202012Validator(schema).iter_errors(found["spec"]), key=lambda error: str(error.json_path))
    if errors:
        words = "; ".join(f"spec{error.json_path[1:]}: {error.message}" for error in errors)
        raise Refused(422, "Invalid", f'{plural} "{found["metadata"]["name"]}" is invalid: {words}')
    if strict:
        require_known(plural, found, operator)
    found["spec"] = _pruned(found["spec"], schema)
    cluster = found["spec"].get("rayClusterConfig", found["spec"])
    for group in [cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", [])]:
        _core({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": group["template"]["spec"]})
    return found


def require_known(plural: str, document: dict[str, Any], operator: str) -> None:
    """Raises Refused, 400 (apiserver, endpoints/handlers/create.go, transformDecodeError), for fields nobody knows."""
    if plural in KUBERAY and (fields := _unknown(document.get("spec", {}), _schema(plural, operator), "spec")):
        words = ", ".join(f'unknown field "{field}"' for field in fields)
        kind = document.get("kind", plural)
        message = f'{kind} in version "v1" cannot be handled as a {kind}: strict decoding error: {words}'
        raise Refused(400, "BadRequest", message)


def _schema(plural: str, operator: str) -> dict[str, Any]:
    schema = KUBERAY[plural]
    if operator >= "1.7" or plural != "rayservices":
        return schema
    return {**schema, "properties": {key: part for key, part in schema["properties"].items() if key != "suspend"}}


def _core(document: dict[str, Any]) -> None:
    if words := _wrong(json.dumps(document, sort_keys=True)):
        raise Refused(422, "Invalid", f"{document['kind']} is invalid: {words}")


@cache
def _wrong(document: str) -> str:
    try:
        kubernetes_validate.validate(json.loads(document), VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        return error.message
    return ""


def _unknown(value: Any, schema: dict[str, Any], path: str) -> list[str]:
    if schema.get("type") == "array":
        return [field for n, item in enumerate(value) for field in _unknown(item, schema["items"], f"{path}[{n}]")]
    properties = schema.get("properties")
    if properties is None or not isinstance(value, dict):
        return []
    return [
        field
        for key, inner in value.items()
        for field in (_unknown(inner, properties[key], f"{path}.{key}") if key in properties else [f"{path}.{key}"])
    ]


def _pruned(value: Any, schema: dict[str, Any]) -> Any:
    """Structural schemas keep what they name (Kubernetes, "Field pruning")."""
    if schema.get("type") == "array":
        return [_pruned(item, schema["items"]) for item in value]
    properties = schema.get("properties")
    if properties is None or not isinstance(value, dict):
        return value
    return {key: _pruned(inner, properties[key]) for key, inner in value.items() if key in properties}
