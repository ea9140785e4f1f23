"""Two trainings on a simulated cluster without AWS, whose scheduler places pods apart from the pipeline's reckoning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.settings import ServerSettings
from tasks.cluster.any_kubernetes import AnyKubernetes
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.owners import Owner
from tasks.cluster.settings import KubeRaySettings, TrainingMachines
from tasks.errors import ClusterNotReady
from tests.simulated_cluster.api import simulated_cluster
from tests.simulated_cluster.world import Machine, World
from tests.unit.cluster.account import IMAGES, settings_of

pytestmark = pytest.mark.slow_s(40)
GPU_TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}


class Site:
    """A cluster with labelled machines, and the pipeline's way to it."""

    def __init__(self, world: World, kubeconfig: str) -> None:
        run = settings_of("retrain/kuberay")
        self.world, self.server = world, run.serve.server
        named = {"kubeconfig": kubeconfig, "train_image": "", "serve_image": ""}
        self.settings: KubeRaySettings = run.hosting.model_copy(update=named)
        self.said: list[str] = []
        for group, count, gpus in (("cpu", 1, 0), ("gpu", 3, 2), ("serve-gpu", 1, 2)):
            for number in range(count):
                taints = [GPU_TAINT] if gpus else []
                labels = {"maze-retrain/group": group}
                world.add(Machine(f"{group}-{number}", group, "any", 31, 244, gpus, taints=taints, labels=labels))

    def hosting(self, **changes: Any) -> AnyKubernetes:
        settings, clock = self.settings.model_copy(update=changes), self.world.clock
        return AnyKubernetes(settings, KubeRay(settings.kubeconfig), clock.sleep, clock.now, clock.monotonic)

    def train(self, run_name: str, server: ServerSettings, **changes: Any) -> float:
        """A run's clusters, from the first look to the endpoint that answers; for how many seconds it was away."""
        hosting, owner = self.hosting(**changes), Owner(run_name)
        hosting.make_room(owner, server, IMAGES, self.said.append)
        hosting.training_up(owner, IMAGES, self.said.append)
        self.world.clock.sleep(3600)
        hosting.training_down(owner, self.said.append)
        return hosting.serving_up(server, IMAGES, self.said.append)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with simulated_cluster(tmp_path) as (world, kubeconfig):
        yield Site(world, kubeconfig)


def test_serving_stays_on_its_own_machine_while_two_runs_train(site: Site) -> None:
    assert [site.train(name, site.server) for name in ("first", "second")] == [0.0, 0.0]
    held = {machine: len(pods) for machine, pods in site.world.holders().items()}
    assert held == {"cpu-0": 1, "gpu-0": 0, "gpu-1": 0, "gpu-2": 0, "serve-gpu-0": 1}


def test_serving_on_the_training_machines_is_away_for_the_second_run_and_comes_back(site: Site) -> None:
    shared = {"serving": TrainingMachines()}
    assert site.train("first", site.server, **shared) == 0.0
    assert 3600 <= site.train("second", site.server, **shared) < 7200
    assert [service["status"]["serviceStatus"] for service in site.world.every("rayservices")] == ["Running"]


def test_a_lost_gpu_machine_is_named_before_anything_is_made(site: Site) -> None:
    site.world.lose("gpu-1")
    with pytest.raises(ClusterNotReady, match=r"pod skyrl-visgym-gpu-3 .* has no place: .*gpu-1: it is not ready"):
        site.hosting().training_up(Owner("first"), IMAGES, site.said.append)
    assert site.world.changes == []
