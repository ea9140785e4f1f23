"""Clusters brought up, taken over, taken down and cleaned up, cut at every outside call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasks.cleanup.in_ray import Jobs
from tasks.cleanup.order import Order
from tasks.cleanup.parts import clean
from tasks.cluster.hyperpod import HyperPod
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.manifests import ray_cluster
from tasks.cluster.owners import Owner
from tasks.records import ImageRef
from tests.every_cut import every_cut, outside
from tests.unit.cleanup.test_cleanup import FakeJobs
from tests.unit.cluster.account import APP_RUNS, IMAGES, OTHER_IMAGES, Account
from tests.unit.cluster.account import account as account
from tests.unit.cluster.kube_api import READY

pytestmark = pytest.mark.slow_s(120)

CLUSTER, SERVICE = ("maze", "rayclusters", "skyrl-visgym"), ("maze", "rayservices", "visgym-llm")
THEIRS = ("maze", "rayclusters", "theirs")
OTHER_SERVE = {"serve": ImageRef(uri=f"registry/serve@sha256:{'c' * 64}", sha256="c" * 64, content="ctx-2")}
ORDER = Order("f-1")


class Hosted:
    """``act`` on an account where ``before`` has happened and a cluster of somebody else runs beside."""

    def __init__(self, account: Account, act: Callable[[Hosted], object], before: Callable[[Hosted], object]) -> None:
        self.account, self.act = account, act
        self.jobs = FakeJobs("r-train-1", "r-publish-8-1", "other")
        fake = account.kubernetes
        fake.clear()
        account.aws.associations.clear()
        fake.service_status = APP_RUNS
        theirs = ray_cluster(account.settings, "theirs", "i")
        theirs["metadata"]["name"] = "theirs"
        fake.create("maze", "rayclusters", theirs)
        fake.script = [READY]
        before(self)
        fake.script = [{}, READY]

    def hosting(self, **changes: Any) -> HyperPod:
        """As a fresh process has it."""
        account, settings = self.account, self.account.settings.model_copy(update=changes)
        kube = KubeRay(settings.kubeconfig)
        return HyperPod(settings, kube, account.identity, account.machines, lambda seconds: None)

    def run(self) -> None:
        self.act(self)

    def state(self) -> Any:
        """What stands there, without what the API server counts."""
        things = {
            key: (thing["metadata"].get("labels"), thing["metadata"].get("annotations"))
            for key, thing in self.account.kubernetes.things.items()
        }
        associations = [(a["roleArn"], a["tags"]) for a in self.account.aws.associations.values()]
        return things, associations, sorted(self.jobs.running)


def others_stay_and_pods_keep_their_identity(trial: Hosted) -> None:
    """In between as well: nobody else's is touched, and no Ray pod stands without the role that it was made with."""
    things, associations, running = trial.state()
    assert things[THEIRS][0] == {"maze-retrain/run": "theirs"}
    assert "other" in running
    assert len(associations) == 1 or not {CLUSTER, SERVICE} & set(things)


def nothing(trial: Hosted) -> None:
    """An account where no run has been."""


def train(trial: Hosted) -> None:
    trial.hosting().training_up(Owner("r", "f-1"), IMAGES, lambda text: None)


def serve(trial: Hosted) -> None:
    trial.hosting().serving_up(trial.account.server, IMAGES, lambda text: None)


def serve_anew(trial: Hosted) -> None:
    trial.hosting(replace_serving=True).serving_up(trial.account.server, OTHER_SERVE, lambda text: None)


def train_again(trial: Hosted) -> None:
    trial.hosting().training_up(Owner("r", "f-2"), IMAGES, lambda text: None)


def take_over(trial: Hosted) -> None:
    trial.hosting(take_over=True).training_up(Owner("nightly", "f-2"), OTHER_IMAGES, lambda text: None)


def take_down(trial: Hosted) -> None:
    trial.hosting().training_down(Owner("r", "f-1"), lambda text: None)


def both(trial: Hosted) -> None:
    train(trial)
    serve(trial)


def clean_up(trial: Hosted) -> None:
    jobs = Jobs(lambda: outside(trial.jobs), lambda: False, ORDER, 10.0, lambda seconds: None)
    parts = [jobs, *trial.account.parts(ORDER)]
    everything = ("jobs", "training", "serving", "identity")
    clean(parts, everything, "r", dry_run=False, say=lambda text: None)


@pytest.mark.parametrize(
    ("act", "before"),
    [
        (train, nothing),
        (train_again, train),
        (take_over, train),
        (take_down, train),
        (serve, train),
        (serve_anew, both),
    ],
)
def test_clusters_come_to_the_same_wherever_their_making_is_cut(
    account: Account, act: Callable[[Hosted], object], before: Callable[[Hosted], object]
) -> None:
    every_cut(lambda: Hosted(account, act, before), others_stay_and_pods_keep_their_identity)


def test_a_clean_up_comes_to_the_same_wherever_it_is_cut(account: Account) -> None:
    cuts = every_cut(lambda: Hosted(account, clean_up, both), others_stay_and_pods_keep_their_identity)
    trial = Hosted(account, clean_up, both)
    trial.run()
    assert set(trial.state()[0]) == {THEIRS, ("maze", "serviceaccounts", "maze-ray")}
    assert trial.jobs.running == ["other"]
    assert len(cuts.tried) > 100
