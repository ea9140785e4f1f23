"""An AWS account with all its machines on loopback, and the pipeline's way to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest

from flows.deployments import load_settings
from serving.settings import ServerSettings
from tasks.cleanup.in_aws import Identity, Machines
from tasks.cleanup.in_kubernetes import RayResources
from tasks.cleanup.order import Order
from tasks.cleanup.parts import LeftPart
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.hosting import HyperPod
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.settings import HyperPodSettings
from tasks.records import ImageRef
from tests.unit.cluster.aws_api import FakeAws, aws_api
from tests.unit.cluster.kube_api import READY, FakeKubernetes, kubernetes_api, node, pod

IMAGES = {
    name: ImageRef(uri=f"registry/{name}@sha256:{'b' * 64}", sha256="b" * 64, content="ctx-1")
    for name in ("train", "serve")
}
OTHER_IMAGES = {"train": IMAGES["train"].model_copy(update={"uri": f"registry/train@sha256:{'c' * 64}"})}
BY_HAND = Order()
APP_RUNS = {"activeServiceStatus": {"applicationStatuses": {"llm": {"status": "RUNNING"}}}}


@dataclass
class Account:
    """An account with all its machines, and the pipeline's way to it."""

    kubernetes: FakeKubernetes
    aws: FakeAws
    settings: HyperPodSettings
    server: ServerSettings
    kube: KubeRay
    identity: PodIdentity
    machines: HyperPodMachines
    slept: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def hosting(self, **changes: Any) -> HyperPod:
        settings = self.settings.model_copy(update=changes)
        return HyperPod(settings, self.kube, self.identity, self.machines, self.slept.append)

    def parts(self, order: Order = BY_HAND) -> list[LeftPart]:
        return [
            RayResources("serving", self.settings, lambda: self.kube, order),
            RayResources("training", self.settings, lambda: self.kube, order),
            Identity(self.settings, self.identity, lambda: self.kube),
            Machines(self.settings, self.machines),
        ]


@cache
def settings_of(name: str) -> Any:
    """Of a cluster's deployment, which says the same whoever asks."""
    return load_settings(name, {})


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    run = settings_of("retrain/hyperpod")
    with kubernetes_api(tmp_path) as (kubernetes, kubeconfig), aws_api() as (aws, endpoint):
        settings = run.hosting.model_copy(update={"kubeconfig": kubeconfig, "poll_s": 0.0, "ready_timeout_s": 5.0})
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": settings.region}
        identity = PodIdentity(settings.region, "maze-eks", boto3.client("eks", endpoint_url=endpoint, **keys))
        sagemaker = boto3.client("sagemaker", endpoint_url=endpoint, **keys)
        machines = HyperPodMachines(settings.region, "maze", sagemaker)
        aws.add_machine("head", "ml.r5d.16xlarge")
        kubernetes.nodes = [node("head", "ml.r5d.16xlarge", 0)]
        aws.add_machine("serve-head", "ml.m5.2xlarge")
        aws.add_machine("serve-gpu", "ml.g7e.2xlarge")
        kubernetes.nodes += [node("serve-0", "ml.m5.2xlarge", 0), node("serve-1", "ml.g7e.2xlarge", 1)]
        for number in range(3):
            aws.add_machine("gpu-workers", "ml.g7e.12xlarge")
            kubernetes.nodes.append(node(f"gpu-{number}", "ml.g7e.12xlarge", 2))
        kubernetes.pods = [pod("ray-head"), *(pod(f"ray-worker-{number}") for number in range(3))]
        kubernetes.script = [{}, READY]
        yield Account(kubernetes, aws, settings, run.serve.server, KubeRay(kubeconfig), identity, machines)
