"""docker/worker-kuberay.yaml against what the deployments of its pool want of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from kubernetes_validate import validate

from flows.deployments import deployments
from tests.simulated_cluster.rbac import ROLE_KUBERAY, documents
from tests.unit.cluster.account import settings_of

WORKER: Any = list(yaml.safe_load_all(Path("docker/worker-kuberay.yaml").read_text()))
POD = WORKER[1]["spec"]["template"]["spec"]


def test_its_documents_are_kubernetes_own() -> None:
    for document in WORKER:
        validate(document, "1.32", strict=True)


def test_it_serves_the_pool_of_its_deployments() -> None:
    assert POD["containers"][0]["args"][-1] == deployments()["retrain/kuberay"]["work_pool"]["name"]


def test_it_is_whom_the_role_is_bound_to_in_the_namespace_of_the_runs() -> None:
    (binding,) = documents("RoleBinding", ROLE_KUBERAY)
    account = {"name": POD["serviceAccountName"], "namespace": WORKER[0]["metadata"]["namespace"]}
    assert account.items() <= binding["subjects"][0].items()
    assert settings_of("retrain/kuberay").hosting.namespace == account["namespace"]


def test_it_has_the_object_store_s_keys_as_the_ray_pods_have_them() -> None:
    secrets = [each["secretRef"]["name"] for each in POD["containers"][0]["envFrom"]]
    assert settings_of("retrain/kuberay").hosting.env_secret in secrets


def test_jobs_go_to_the_head_s_service_of_the_cluster_that_it_makes() -> None:
    settings = settings_of("retrain/kuberay")
    hosting = settings.hosting
    # KubeRay names it after the cluster (common/service.go, GenerateHeadServiceName).
    host = f"{hosting.train_cluster}-head-svc.{hosting.namespace}.svc.cluster.local"
    assert settings.cluster.jobs_address == f"http://{host}:8265"
