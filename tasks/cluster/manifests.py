"""KubeRay resources of a run as documents for the Kubernetes API. Pure: nothing is applied here.

Pods are the Kubernetes client's typed objects; RayCluster and RayService have no types in Python, so their few fields
around the pods are spelled out (KubeRay 1.6, api ray.io/v1).
"""

from __future__ import annotations

from typing import Any

import yaml
from kubernetes.client import (
    ApiClient,
    V1Container,
    V1EmptyDirVolumeSource,
    V1EnvFromSource,
    V1EnvVar,
    V1LocalObjectReference,
    V1ObjectMeta,
    V1PersistentVolumeClaimVolumeSource,
    V1PodSpec,
    V1PodTemplateSpec,
    V1ResourceRequirements,
    V1SecretEnvSource,
    V1ServiceAccount,
    V1Toleration,
    V1Volume,
    V1VolumeMount,
)

from serving.app import serve_document
from serving.settings import ServerSettings
from tasks.cluster.labels import RUN_LABEL
from tasks.cluster.placement import PodAsk, asks_of
from tasks.cluster.ray_settings import MachineGroup, RayOnKubernetes

Manifest = dict[str, Any]
FLOW_RUN_ANNOTATION = "maze-retrain/flow-run"


class _ForReading(yaml.SafeDumper):
    """Texts of several lines, such as serveConfigV2, stay lines."""


def _as_lines(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_ForReading.add_representer(str, _as_lines)


def as_yaml(manifest: Manifest) -> str:
    """The document as people and kubectl read it."""
    # types-PyYAML wants a Dumper and takes no SafeDumper.
    dumper: Any = _ForReading
    text: Any = yaml.dump_all([manifest], Dumper=dumper, sort_keys=False)
    return text


def service_account(settings: RayOnKubernetes) -> Manifest:
    """The identity of every Ray pod. EKS Pod Identity ties it to a role, the account itself names none."""
    account = V1ServiceAccount(
        api_version="v1",
        kind="ServiceAccount",
        metadata=V1ObjectMeta(name=settings.service_account, namespace=settings.namespace),
    )
    return _document(account)


def ray_cluster(settings: RayOnKubernetes, run_name: str, image: str, flow_run_id: str = "") -> Manifest:
    """The cluster that trains: a head without GPUs, and workers that are all there or not at all."""
    attempt = {FLOW_RUN_ANNOTATION: flow_run_id} if flow_run_id else {}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": settings.train_cluster,
            "namespace": settings.namespace,
            "labels": {**settings.extras.labels, RUN_LABEL: run_name},
            "annotations": {**settings.extras.annotations, **attempt},
        },
        "spec": _cluster_spec(
            settings, image, settings.train_ray_version, (settings.head, settings.workers), env=_train_env()
        ),
    }


def ray_service(settings: RayOnKubernetes, server: ServerSettings, image: str) -> Manifest:
    """The serving cluster and the application on it. No run's name is in it: it outlives the runs.

    ``upgradeStrategy`` None: a changed pod would otherwise bring up a second cluster, and wait for its GPUs for ever.
    """
    groups = _serving_groups(settings)
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {
            "name": settings.serve_name,
            "namespace": settings.namespace,
        },
        "spec": {
            "serveConfigV2": yaml.safe_dump(serve_document(server), sort_keys=False),
            "upgradeStrategy": {"type": "None"},
            "rayClusterConfig": _cluster_spec(settings, image, settings.serve_ray_version, groups, env={}),
        },
    }


def training_pods(settings: RayOnKubernetes) -> list[PodAsk]:
    """The pods of the RayCluster that trains, whatever their image."""
    return asks_of(settings.train_cluster, ray_cluster(settings, "any", "any")["spec"])


def serving_pods(settings: RayOnKubernetes) -> list[PodAsk]:
    """The pods of the RayService, whatever their image and application."""
    spec = _cluster_spec(settings, "any", settings.serve_ray_version, _serving_groups(settings), env={})
    return asks_of(settings.serve_name, spec)


def _serving_groups(settings: RayOnKubernetes) -> tuple[MachineGroup, MachineGroup]:
    head, worker = settings.serving_groups
    return head, worker.model_copy(update={"num_gpus": settings.serve_gpus})


def _document(typed: Any) -> Manifest:
    plain: Any = ApiClient().sanitize_for_serialization(typed)
    return plain


def _train_env() -> dict[str, str]:
    """Ray gives a stopped job 3 s before it kills it, read from the supervisor's environment: checkpoints need more."""
    return {"RAY_JOB_STOP_WAIT_TIME_S": "120"}


def _cluster_spec(
    settings: RayOnKubernetes,
    image: str,
    ray_version: str,
    groups: tuple[MachineGroup, MachineGroup],
    env: dict[str, str],
) -> Manifest:
    head, workers = groups[0].model_copy(update={"num_gpus": 0}), groups[1]
    return {
        "rayVersion": ray_version,
        "enableInTreeAutoscaling": False,
        "headGroupSpec": {
            # Jobs come over the head's service, so the dashboard is on every interface; no GPU work on the head.
            "rayStartParams": {"dashboard-host": "0.0.0.0", "num-gpus": "0"},
            "template": _pod(settings, "ray-head", image, head, env),
        },
        "workerGroupSpecs": [
            {
                "groupName": "gpu",
                "replicas": workers.count,
                "minReplicas": workers.count,
                "maxReplicas": workers.count,
                "rayStartParams": {"num-gpus": str(workers.num_gpus)},
                "template": _pod(settings, "ray-worker", image, workers, env),
            }
        ],
    }


def _pod(settings: RayOnKubernetes, name: str, image: str, node: MachineGroup, env: dict[str, str]) -> Manifest:
    amounts = {"cpu": str(node.num_cpus), "memory": f"{node.memory_gib}Gi"}
    amounts |= {"nvidia.com/gpu": str(node.num_gpus)} if node.num_gpus else {}
    extras = settings.extras
    secret = extras.env_secret
    container = V1Container(
        name=name,
        image=image,
        env=[V1EnvVar(name=key, value=value) for key, value in {**extras.env, **env}.items()] or None,
        env_from=[V1EnvFromSource(secret_ref=V1SecretEnvSource(name=secret))] if secret else None,
        # Requests equal to limits: the pod is the last to be evicted when its node runs short.
        resources=V1ResourceRequirements(requests=amounts, limits=amounts),
        volume_mounts=[
            V1VolumeMount(name="shared", mount_path=settings.shared_mount),
            V1VolumeMount(name="shm", mount_path="/dev/shm"),
        ],
    )
    spec = V1PodSpec(
        service_account_name=settings.service_account or None,
        image_pull_secrets=[V1LocalObjectReference(name=extras.image_pull_secret)]
        if extras.image_pull_secret
        else None,
        priority_class_name=extras.priority_class or None,
        node_selector=node.selector,
        tolerations=[V1Toleration(**taint) for taint in node.tolerated] or None,
        containers=[container],
        volumes=[
            V1Volume(
                name="shared",
                persistent_volume_claim=V1PersistentVolumeClaimVolumeSource(claim_name=settings.shared_claim),
            ),
            # It is a part of the pod's memory: a small pod gets at most half of its own.
            V1Volume(
                name="shm",
                empty_dir=V1EmptyDirVolumeSource(
                    medium="Memory", size_limit=f"{min(settings.shm_gib, max(1, node.memory_gib // 2))}Gi"
                ),
            ),
        ],
    )
    return _document(V1PodTemplateSpec(spec=spec))
