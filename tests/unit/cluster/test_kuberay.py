"""The Kubernetes adapter against an API on loopback: create, wait, find again, delete."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.cluster.kube_waits import cluster_shortfall, wait_for_cluster, wait_until_gone
from tasks.cluster.kuberay import ChangedMeanwhile, KubeRay
from tasks.cluster.manifests import ray_cluster, service_account
from tasks.cluster.settings import HyperPodSettings
from tasks.errors import ClusterNotReady, KubernetesRefused, KubernetesUnreachable
from tests.unit.cluster.account import settings_of
from tests.unit.cluster.kube_api import READY, FakeKubernetes, condition, kubernetes_api

IMAGE = "registry/maze@sha256:" + "a" * 64
Api = tuple[FakeKubernetes, KubeRay, HyperPodSettings]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    settings = settings_of("retrain/hyperpod").hosting
    with kubernetes_api(tmp_path) as (fake, kubeconfig):
        settings = settings.model_copy(update={"kubeconfig": kubeconfig, "poll_s": 0.01})
        yield fake, KubeRay(kubeconfig), settings


def test_applying_twice_creates_once_and_a_change_is_a_patch(api: Api) -> None:
    fake, kube, settings = api
    manifest = ray_cluster(settings, "r", IMAGE)
    before = copy.deepcopy(manifest)
    assert [kube.apply(manifest), kube.apply(manifest)] == ["created", "unchanged"]
    assert manifest == before
    assert kube.apply(ray_cluster(settings, "another-run", IMAGE)) == "changed"
    assert fake.changes == ["create rayclusters maze/skyrl-visgym", "patch rayclusters maze/skyrl-visgym"]


def seen(kube: KubeRay) -> dict[str, Any]:
    there = kube.look("RayCluster", "maze", "skyrl-visgym")
    assert there
    return there


def test_what_changed_since_it_was_seen_is_neither_patched_nor_deleted_nor_made_twice(api: Api) -> None:
    fake, kube, settings = api
    mine, theirs = ray_cluster(settings, "r", IMAGE), ray_cluster(settings, "another", IMAGE)
    fake.meanwhile = lambda: fake.create("maze", "rayclusters", copy.deepcopy(theirs))
    with pytest.raises(ChangedMeanwhile, match="already exists; someone else changed it meanwhile: run again"):
        kube.apply(mine)
    old = seen(kube)
    kube.apply(mine, old)
    with pytest.raises(ChangedMeanwhile, match="has been modified"):
        kube.apply(theirs, old)
    with pytest.raises(ChangedMeanwhile, match="has been modified"):
        kube.delete(old)
    kube.delete(seen(kube))
    assert fake.changes[-2:] == [
        "patch rayclusters maze/skyrl-visgym",
        "delete rayclusters maze/skyrl-visgym Foreground",
    ]


def test_a_field_that_the_operator_does_not_know_is_refused_and_not_dropped(api: Api) -> None:
    fake, kube, settings = api
    manifest = ray_cluster(settings, "r", IMAGE)
    wrong = copy.deepcopy(manifest)
    wrong["spec"]["workerGroupSpecs"][0]["numGpus"] = 2
    unknown = (
        r'answered 400 .*strict decoding error: unknown field "spec.workerGroupSpecs\[0\].numGpus"; .* not fit the'
    )
    with pytest.raises(KubernetesRefused, match=unknown):
        kube.apply(wrong)
    kube.apply(manifest)
    with pytest.raises(KubernetesRefused, match=unknown):
        kube.apply(wrong)
    with pytest.raises(KubernetesRefused, match=r'unknown field "spec.supsend"'):
        kube.change(seen(kube), {"spec": {"supsend": True}})
    assert fake.changes == ["create rayclusters maze/skyrl-visgym"]


@pytest.mark.parametrize("message", ["404 page not found", 'namespaces "maze" not found'])
def test_a_404_that_does_not_speak_of_the_resource_is_not_its_absence(api: Api, message: str) -> None:
    fake, kube, settings = api
    fake.refusal = (404, "NotFound", message)
    for ask in (lambda: kube.look("RayCluster", "maze", "c"), lambda: kube.apply(ray_cluster(settings, "r", IMAGE))):
        with pytest.raises(
            KubernetesRefused, match=r"is the KubeRay operator installed, and is hosting.namespace right"
        ):
            ask()


def test_a_service_account_is_found_again_too(api: Api) -> None:
    fake, kube, settings = api
    account = service_account(settings)
    assert [kube.apply(account), kube.apply(account)] == ["created", "unchanged"]
    assert fake.changes == ["create serviceaccounts maze/maze-ray"]


@pytest.mark.parametrize(
    ("status", "lacks"),
    [
        ({}, "the operator has not taken it up yet"),
        ({"observedGeneration": 1}, "HeadPodReady is Unknown"),
        (
            {"observedGeneration": 1, "conditions": [condition("HeadPodReady", "False", message="no node fits")]},
            "HeadPodReady is False: no node fits",
        ),
        (
            {"observedGeneration": 1, "conditions": [condition("ReplicaFailure", reason="Failed", message="quota")]},
            "pods cannot be made: Failed: quota",
        ),
        ({**READY, "availableWorkerReplicas": 2}, "2 of 3 workers are there"),
        (READY, ""),
    ],
)  # fmt: skip
def test_a_cluster_is_ready_when_its_conditions_say_so(status: dict[str, Any], lacks: str) -> None:
    cluster = {"metadata": {"generation": 1}, "status": status}
    found = cluster_shortfall(cluster, 3)
    assert found.startswith(lacks)
    assert bool(found) == bool(lacks)


def test_waiting_says_each_state_once_and_ends_when_all_is_there(api: Api) -> None:
    fake, kube, settings = api
    kube.apply(ray_cluster(settings, "r", IMAGE))
    fake.script = [{}, {}, {**READY, "availableWorkerReplicas": 1}, READY]
    said: list[str] = []
    slept: list[float] = []
    wait_for_cluster(kube, "maze", "skyrl-visgym", 3, 60, 5.0, said.append, sleep=slept.append, clock=lambda: 0.0)
    assert [line.partition(": ")[2] for line in said] == [
        "the operator has not taken it up yet; does it run?",
        "1 of 3 workers are there",
    ]
    assert slept == [5.0, 5.0, 5.0]


def test_running_out_of_time_gives_the_pods_own_words(api: Api) -> None:
    fake, kube, settings = api
    kube.apply(ray_cluster(settings, "r", IMAGE))
    fake.script = [{**READY, "availableWorkerReplicas": 0}]
    waiting = {"reason": "ImagePullBackOff", "message": "manifest unknown"}
    container = {"name": "ray-worker", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    scheduling = condition("PodScheduled", "False", reason="Unschedulable", message="0/4 nodes: too few GPUs")
    fake.pods = [
        {"metadata": {"name": "w-1"}, "status": {"containerStatuses": [{**container, "state": {"waiting": waiting}}]}},
        {"metadata": {"name": "w-2"}, "status": {"conditions": [scheduling]}},
    ]
    times = iter([0.0, 10.0, 700.0])
    wanted = (
        r"not ready after 600 s: 0 of 3 workers are there; pod w-1: ImagePullBackOff: manifest unknown; "
        r"pod w-2: Unschedulable: 0/4 nodes: too few GPUs"
    )
    with pytest.raises(ClusterNotReady, match=wanted):
        wait_for_cluster(
            kube, "maze", "skyrl-visgym", 3, 600, 5.0, lambda text: None, lambda s: None, clock=lambda: next(times)
        )


CLUSTER = ("maze", "rayclusters", "skyrl-visgym")
DNS = "RayCluster name should be a valid DNS1035 label"


@pytest.mark.parametrize("reason", ["InvalidRayClusterMetadata", "InvalidRayClusterSpec"])
def test_an_operator_that_will_not_have_the_cluster_ends_the_wait_at_once(api: Api, reason: str) -> None:
    fake, kube, settings = api
    kube.apply(ray_cluster(settings, "r", IMAGE))
    fake.tell(CLUSTER, reason, DNS)
    slept: list[float] = []
    with pytest.raises(ClusterNotReady, match=f"skyrl-visgym will not come up: {reason}: {DNS}; correct hosting"):
        wait_for_cluster(kube, "maze", "skyrl-visgym", 3, 3600, 15.0, print, slept.append)
    assert slept == []


def test_warnings_about_the_cluster_are_told_once_and_those_about_an_earlier_one_are_not(api: Api) -> None:
    fake, kube, settings = api
    kube.apply(ray_cluster(settings, "r", IMAGE))
    fake.tell(CLUSTER, "InvalidRayClusterSpec", "of one that was deleted", uid="u-of-old")
    fake.tell(CLUSTER, "CreatedHeadPod", "all well", type="Normal")
    for _ in range(2):
        fake.tell(CLUSTER, "FailedToCreateWorkerPod", "exceeded quota")
    fake.script = [{}, {}, READY]
    said: list[str] = []
    wait_for_cluster(kube, "maze", "skyrl-visgym", 3, 60, 5.0, said.append, sleep=lambda s: None)
    assert [line.partition("; ")[2] for line in said] == ["does it run?; FailedToCreateWorkerPod: exceeded quota"]


def test_a_pod_that_waits_for_its_volume_says_so(api: Api) -> None:
    fake, kube, settings = api
    kube.apply(ray_cluster(settings, "r", IMAGE))
    making = {"name": "ray-head", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    waiting = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    status = {"phase": "Pending", "containerStatuses": [{**making, **waiting}]}
    fake.pods = [{"metadata": {"name": "head", "namespace": "maze", "uid": "u-head"}, "status": status}]
    fake.tell(("maze", "pods", "head"), "FailedScheduling", "no node yet", uid="u-head")
    fake.tell(("maze", "pods", "head"), "FailedMount", "no claim fsx-shared", uid="u-head")
    assert kube.pod_troubles("maze", "skyrl-visgym") == ["pod head: FailedMount: no claim fsx-shared"]
    fake.may_read_events = False
    assert kube.pod_troubles("maze", "skyrl-visgym") == []


def test_who_may_not_read_events_waits_all_the_same_and_is_told(api: Api) -> None:
    fake, kube, settings = api
    kube.apply(ray_cluster(settings, "r", IMAGE))
    fake.may_read_events, fake.script = False, [{}, READY]
    said: list[str] = []
    wait_for_cluster(kube, "maze", "skyrl-visgym", 3, 60, 5.0, said.append, sleep=lambda s: None)
    assert "its events cannot be read: the Kubernetes API answered 403" in said[0]


def test_a_cluster_that_vanishes_was_taken_away(api: Api) -> None:
    fake, kube, settings = api
    kube.apply(ray_cluster(settings, "r", IMAGE))
    fake.script = [{}]
    with pytest.raises(ClusterNotReady, match="vanished: pre-empted or deleted"):
        wait_for_cluster(
            kube, "maze", "skyrl-visgym", 3, 60, 1.0, print, sleep=lambda s: fake.things.clear(), clock=lambda: 0
        )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "remedy"), [(403, "docker/role.yaml"), (401, "log in again"), (422, "does not fit the CRD")]
)
def test_a_refusal_says_what_to_do(api: Api, status: int, remedy: str) -> None:
    fake, kube, settings = api
    fake.refusal = (status, "Because", "because")
    with pytest.raises(KubernetesRefused, match=f"answered {status} .*because; .*{remedy}"):
        kube.apply(ray_cluster(settings, "r", IMAGE))


def test_no_kubeconfig_and_no_server_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib3.util.retry.time.sleep", lambda seconds: None)
    with pytest.raises(KubernetesUnreachable, match=r"none gives no connection .*name a file in hosting.kubeconfig"):
        KubeRay(str(tmp_path / "none"))
    with kubernetes_api(tmp_path) as (_, kubeconfig):
        kube = KubeRay(kubeconfig, timeout_s=1.0)
    with pytest.raises(KubernetesUnreachable, match="does not answer"):
        kube.look("RayCluster", "maze", "c")


def test_a_deletion_that_never_ends_is_an_error_that_names_the_operator(api: Api) -> None:
    fake, kube, settings = api
    kube.apply(ray_cluster(settings, "r", IMAGE))
    fake.operator_runs = False
    kube.delete(seen(kube))
    times = iter([0.0, 10.0, 700.0])
    with pytest.raises(ClusterNotReady, match="still there 600 s after its deletion; the KubeRay operator must run"):
        wait_until_gone(
            kube, "RayCluster", "maze", "skyrl-visgym", 600, 1.0, sleep=lambda s: None, clock=lambda: next(times)
        )


def test_a_look_that_gets_no_answer_now_is_made_again_and_a_change_is_not(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, kube, settings = api
    slept: list[float] = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", lambda seconds: (slept.append(seconds), answers())[1])

    def answers() -> None:
        fake.refusal = None

    fake.refusal = (503, "ServiceUnavailable", "the server is starting")
    assert kube.look("RayCluster", "maze", "skyrl-visgym") is None
    assert len(slept) == 1
    fake.refusal = (503, "ServiceUnavailable", "the server is starting")
    with pytest.raises(KubernetesRefused, match="the server is starting"):
        kube.apply(ray_cluster(settings, "r", IMAGE), seen={"metadata": {"resourceVersion": "1"}})
    assert len(slept) == 1
    assert fake.changes == []
