"""Scheduled runs of the flow on the simulated cluster: hosting, readiness and clean-up are real, training is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import boto3
import pytest

import flows.retrain
import tasks.cleanup.clean_up
import tasks.cluster.create
import tasks.readiness.check
from flows.deployments import load_deployment, load_settings
from tasks.cleanup.in_aws import Identity, Machines
from tasks.cleanup.in_kubernetes import RayResources, Suspension
from tasks.cleanup.order import Order
from tasks.cleanup.parts import LeftPart
from tasks.cluster import create
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.hyperpod import HyperPod
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.owners import Owner
from tasks.errors import TrainingJobFailed
from tasks.records import ImageRef
from tests.recording import recording
from tests.simulated_cluster.world import Machine, World
from tests.unit.cluster.aws_api import FakeAws
from tests.unit.flows.test_retrain_flow import STAGES, Anything

TRAINING_S = 11 * 3600.0
SHARED = {"platform.hosting.serving": {"kind": "suspended"}}
SIZES = {
    "head": ("ml.r5d.16xlarge", 1, 63.8, 494.0, 0),
    "gpu-workers": ("ml.g7e.12xlarge", 3, 47.8, 494.0, 2),
    "serve-head": ("ml.m5.2xlarge", 1, 7.9, 30.0, 0),
    "serve-gpu": ("ml.g7e.2xlarge", 1, 7.9, 60.0, 1),
}
REAL = ("make_room_for_training", "create_training_cluster", "release_training_cluster", "create_serving_cluster")


def image(content: str) -> ImageRef:
    return ImageRef(uri=f"registry/maze@sha256:{content * 64}", sha256=content * 64, content=content)


class Week:
    """An account with its machines, the deployment ``retrain/hyperpod``, and a clock."""

    def __init__(
        self, world: World, aws: FakeAws, endpoint: str, kubeconfig: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.world, self.aws, self.kubeconfig, self.patch = world, aws, kubeconfig, monkeypatch
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
        self.identity = PodIdentity("us-east-1", "maze-eks", boto3.client("eks", endpoint_url=endpoint, **keys))
        sagemaker = boto3.client("sagemaker", endpoint_url=endpoint, **keys)
        self.machines = HyperPodMachines("us-east-1", "maze", sagemaker)
        self.images = {"train": image("a"), "serve": image("b")}
        self.in_training: Callable[[], object] = lambda: None
        """What happens in the middle of a training."""
        self.served: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.trainings = 0
        world.identity_of = lambda namespace, account: bool(aws.associations)

    def buy(self, *groups: str) -> None:
        for group in groups:
            instance_type, count, cpus, memory_gib, gpus = SIZES[group]
            for number in range(count):
                self.aws.add_machine(group, instance_type)
                self.world.add(Machine(f"{group}-{number}", group, instance_type, cpus, memory_gib, gpus))

    def go_to(self, day: int, hour: int = 2) -> None:
        """Day 0 is the first Monday."""
        self.world.clock.sleep(day * 86400 + (hour - 2) * 3600 - self.world.clock.passed_s)

    def run(self, run_name: str, changes: Mapping[str, Any] | None = None) -> None:
        """The flow, as it is scheduled."""
        overrides = {"run_name": run_name, "platform.hosting.kubeconfig": self.kubeconfig, **(changes or {})}
        parameters = load_deployment("retrain/hyperpod", overrides)[1]
        self._stages(run_name, f"f-{run_name}", load_settings("retrain/hyperpod", overrides).hosting)
        flows.retrain.retrain.fn(**parameters)

    def _stages(self, run_name: str, flow_run_id: str, hosting: Any) -> None:
        patch = self.patch
        context = replace(recording(run_name)[0], flow_run_id=flow_run_id)
        context.page.said = self.said  # type: ignore[attr-defined]
        real = self.hosting(hosting)
        fakes = {"build_images": self.images, "recall_training": None, "run_training": self._train}
        for name in set(STAGES):
            answer = fakes.get(name, Anything())
            act = answer if callable(answer) and name == "run_training" else lambda *args, answer=answer, **_: answer
            patch.setattr(flows.retrain, name, getattr(create, name).fn if name in REAL else act)
        patch.setattr(flows.retrain, "check_readiness", tasks.readiness.check.check_readiness.fn)
        patch.setattr(flows.retrain, "tracked_run", lambda *args, **kwargs: _given(context))
        patch.setattr(flows.retrain, "contest_of", lambda *args: Anything())
        patch.setattr(flows.retrain, "in_one_line", lambda report: "40/64, promoted")
        patch.setattr(flows.retrain, "require_proof", lambda certificate: None)
        patch.setattr(flows.retrain, "ServedRun", lambda **parts: self.served.append(parts))
        for record in ("FinishedTraining", "ServingSide"):
            patch.setattr(flows.retrain, record, lambda **parts: Anything())
        patch.setattr(tasks.cluster.create, "hosting_of", lambda settings: real)
        patch.setattr(tasks.readiness.check, "hosting_of", lambda settings: real)
        patch.setattr(tasks.readiness.check, "own_checks", lambda *args: [])
        patch.setattr(tasks.readiness.check, "asked_nodes", lambda *args: [])
        patch.setattr(tasks.cleanup.clean_up, "clean_up", tasks.cleanup.clean_up.clean_up)
        clean = getattr(tasks.cleanup.clean_up.clean_up, "fn", tasks.cleanup.clean_up.clean_up)
        patch.setattr(tasks.cleanup.clean_up, "clean_up", clean)
        patch.setattr(tasks.cleanup.clean_up, "parts_of", lambda context, scope, order: self.parts(hosting, order))

    def hosting(self, settings: Any) -> HyperPod:
        clock = self.world.clock
        kube = KubeRay(self.kubeconfig)
        return HyperPod(settings, kube, self.identity, self.machines, clock.sleep, clock.now, clock.monotonic)

    def make_room(self, run_name: str, changes: Mapping[str, Any]) -> None:
        """The flow's first look at the clusters, and no more: what a run that dies then leaves behind."""
        settings = self.settings(run_name, changes)
        owner, server = Owner(run_name, f"f-{run_name}"), settings.serve.server
        self.hosting(settings.hosting).make_room(owner, server, self.images, self.said.append)

    def left(self, run_name: str, changes: Mapping[str, Any]) -> list[str]:
        """Why what is suspended would stay, if that run's clean-up looked now."""
        hosting = self.settings(run_name, changes).hosting
        order = Order(flow_run_id=f"f-{run_name}")
        parts = [part for part in self.parts(hosting, order) if isinstance(part, Suspension)]
        return [left.keep for part in parts for left in part.find(run_name)]

    def settings(self, run_name: str, changes: Mapping[str, Any]) -> Any:
        overrides = {"run_name": run_name, "platform.hosting.kubeconfig": self.kubeconfig, **changes}
        return load_settings("retrain/hyperpod", overrides)

    def service(self) -> dict[str, Any]:
        """The RayService, as the API server has it."""
        return self.world.every("rayservices")[0]

    def parts(self, hosting: Any, order: Order) -> list[LeftPart]:
        """What there is to clean up in Kubernetes and AWS."""
        kube = lambda: KubeRay(self.kubeconfig)  # noqa: E731
        sleep = self.world.clock.sleep
        return [
            RayResources("serving", hosting, kube, order, sleep),
            RayResources("training", hosting, kube, order, sleep),
            Suspension(hosting, kube, order),
            Identity(hosting, self.identity, kube),
            Machines(hosting, self.machines),
        ]

    def _train(self, *args: Any) -> Anything:
        """Hours on six GPUs; a training whose pods go away fails, as Ray's job does."""
        self.trainings += 1
        self.world.clock.sleep(TRAINING_S / 2)
        self.in_training()
        self.world.clock.sleep(TRAINING_S / 2)
        pods = [pod for pod in self.world.every("pods") if "skyrl-visgym" in pod["metadata"]["name"]]
        if [pod["status"]["phase"] for pod in pods] != ["Running"] * 4 or self.lost():
            raise TrainingJobFailed("Ray job r-train-1 ended as FAILED: a node is gone")
        return Anything()

    def lost(self) -> bool:
        """Whether a training pod left its machine since the training began."""
        last = [line for line in self.world.timeline if "skyrl-visgym" in line[2]][-1]
        return last[3] == "leaves"

    def endpoint(self) -> str:
        """What users of the champion meet now."""
        services = self.world.every("rayservices")
        return services[0].get("status", {}).get("serviceStatus", "away") if services else "nothing there"


@contextmanager
def _given(context: Any) -> Iterator[Any]:
    yield context
