"""KubeRay's controllers: pods of a RayCluster, the RayCluster of a RayService, and what their status says.

After KubeRay v1.7.0 (59d663aeec13), ray-operator/controllers/ray: raycluster_controller.go (reconcilePods,
calculateStatus) and rayservice_controller.go (handleSuspend, reconcileRayCluster); read there, written anew.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import yaml

from tests.simulated_cluster.world import World

APP_START_S = 300.0
"""From a ready cluster to a running application: the model is loaded."""
IDENTITY = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")


def reconcile(world: World) -> None:
    if world.faults.no_operator:
        return
    for service in world.every("rayservices"):
        _service(world, service)
    for cluster in world.every("rayclusters"):
        _cluster(world, cluster)


def _cluster(world: World, cluster: dict[str, Any]) -> None:
    metadata, spec = cluster["metadata"], cluster["spec"]
    pods = _pods(world, cluster)
    if "deletionTimestamp" in metadata:
        for pod in pods:
            world.drop("pods", metadata["namespace"], pod["metadata"]["name"])
        if not pods:
            world.drop("rayclusters", metadata["namespace"], metadata["name"])
        return
    wanted = [("head", "headgroup", spec["headGroupSpec"]["template"])]
    for group in spec["workerGroupSpecs"]:
        wanted += [("worker", group["groupName"], group["template"])] * group["replicas"]
    for node_type, group, template in wanted:
        mine = [pod for pod in pods if pod["metadata"]["labels"]["ray.io/group"] == group]
        if mine:
            pods.remove(mine[0])
        else:
            _make_pod(world, cluster, node_type, group, template)
    _tell_cluster(world, cluster, len(wanted) - 1)


def _make_pod(world: World, cluster: dict[str, Any], node_type: str, group: str, template: dict[str, Any]) -> None:
    metadata = cluster["metadata"]
    labels = {"ray.io/cluster": metadata["name"], "ray.io/node-type": node_type, "ray.io/group": group}
    spec = copy.deepcopy(template["spec"])
    if world.identity_of(metadata["namespace"], spec.get("serviceAccountName", "default")):
        # EKS's admission webhook, when the pod is admitted and never later.
        spec["containers"][0].setdefault("env", []).extend({"name": name, "value": "v"} for name in IDENTITY)
    name = f"{metadata['name']}-{node_type}-{world.number():05}"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
    world.put("pods", metadata["namespace"], pod)["status"] = {"phase": "Pending"}


def _tell_cluster(world: World, cluster: dict[str, Any], num_workers: int) -> None:
    metadata, pods = cluster["metadata"], _pods(world, cluster)
    up = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    head = any(pod["metadata"]["labels"]["ray.io/node-type"] == "head" for pod in up)
    workers = len(up) - head
    before = {each["type"]: each["status"] for each in cluster.get("status", {}).get("conditions", [])}
    # Once provisioned it stays so, whatever pods do (raycluster_types.go).
    provisioned = before.get("RayClusterProvisioned") == "True" or (head and workers == num_workers)
    conditions = [
        _condition("HeadPodReady", head, "HeadPodRunningAndReady" if head else "ContainersNotReady"),
        _condition(
            "RayClusterProvisioned",
            provisioned,
            "AllPodRunningAndReadyFirstTime" if provisioned else "RayClusterPodsProvisioning",
        ),
    ]
    cluster["status"] = {
        "observedGeneration": metadata["generation"],
        "conditions": conditions,
        "availableWorkerReplicas": workers,
        "readyWorkerReplicas": workers,
        "desiredWorkerReplicas": num_workers,
        **({"state": "ready"} if head and workers == num_workers else {}),
    }


def _service(world: World, service: dict[str, Any]) -> None:
    metadata, spec = service["metadata"], service["spec"]
    owned = [each for each in world.every("rayclusters") if each["metadata"].get("owner") == metadata["uid"]]
    leaving = "deletionTimestamp" in metadata
    states = {each["type"]: each["status"] for each in service.get("status", {}).get("conditions", [])}
    if leaving or spec.get("suspend") or states.get("Suspending") == "True":
        for cluster in owned:
            cluster["metadata"].setdefault("deletionTimestamp", world.clock.text())
        if leaving and not owned:
            world.drop("rayservices", metadata["namespace"], metadata["name"])
        elif not leaving:
            kind = "Suspending" if owned else "Suspended"
            told = [_condition(kind, True, "SuspendInProgress"), _condition("Ready", False, "SuspendInProgress")]
            service["status"] = {"conditions": told}
        return
    if not owned:
        name = f"{metadata['name']}-{world.number():05}"
        made = {"kind": "RayCluster", "metadata": {"name": name}, "spec": copy.deepcopy(spec["rayClusterConfig"])}
        made["metadata"] |= {"labels": {"ray.io/originated-from-cr-name": metadata["name"]}}
        world.put("rayclusters", metadata["namespace"], made)["metadata"]["owner"] = metadata["uid"]
        owned = [made]
    _tell_service(world, service, owned[0])


def _tell_service(world: World, service: dict[str, Any], cluster: dict[str, Any]) -> None:
    name = cluster["metadata"]["name"]
    is_up = cluster.get("status", {}).get("state") == "ready"
    if not is_up:
        cluster["metadata"].pop("up_s", None)
    since_s = cluster["metadata"].setdefault("up_s", world.clock.passed_s) if is_up else None
    runs = since_s is not None and world.clock.passed_s - since_s >= APP_START_S
    app = _app_name(service["spec"]["serveConfigV2"])
    status: dict[str, Any] = {"rayClusterName": name}
    if is_up:
        status["applicationStatuses"] = {app: {"status": "RUNNING" if runs else "DEPLOYING"}}
    service["status"] = {
        "observedGeneration": service["metadata"]["generation"],
        "conditions": [_condition("Ready", runs, "NonZeroServeEndpoints" if runs else "Initializing")],
        ("activeServiceStatus" if runs else "pendingServiceStatus"): status,
        **({"serviceStatus": "Running"} if runs else {}),
    }


@cache
def _app_name(config: str) -> str:
    name: str = yaml.safe_load(config)["applications"][0]["name"]
    return name


def _pods(world: World, cluster: dict[str, Any]) -> list[dict[str, Any]]:
    metadata = cluster["metadata"]
    pods = world.every("pods", metadata["namespace"])
    return [pod for pod in pods if pod["metadata"]["labels"].get("ray.io/cluster") == metadata["name"]]


def _condition(kind: str, holds: bool, reason: str) -> dict[str, str]:
    return {"type": kind, "status": "True" if holds else "False", "reason": reason}
