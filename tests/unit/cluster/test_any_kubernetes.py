"""Any Kubernetes cluster with KubeRay, on loopback: nothing of AWS is asked or written, Kueue may hold a run back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from serving.settings import ServerSettings
from tasks.cleanup.in_kubernetes import RayResources
from tasks.cleanup.order import Order
from tasks.cleanup.parts import clean
from tasks.cluster.any_kubernetes import AnyKubernetes
from tasks.cluster.hosting import hosting_of
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.manifests import as_yaml, ray_cluster, ray_service
from tasks.cluster.owners import Owner
from tasks.cluster.settings import KubeRaySettings, Toleration
from tasks.errors import ClusterNotReady, KubernetesUnreachable
from tests.unit.cluster.account import APP_RUNS, IMAGES, settings_of
from tests.unit.cluster.kube_api import READY, FakeKubernetes, kubernetes_api

CLUSTER = ("maze", "rayclusters", "skyrl-visgym")
NO_QUOTA = "couldn't assign flavors to pod set gpu: insufficient unused quota for nvidia.com/gpu"


def machine(group: str, number: int, cpus: int, memory_gib: int, gpus: int) -> dict[str, Any]:
    """A Kubernetes node that somebody has labelled."""
    allocatable = {"cpu": str(cpus), "memory": f"{memory_gib}Gi", "nvidia.com/gpu": str(gpus)}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": allocatable}
    spec = {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]} if gpus else {}
    metadata = {"name": f"{group}-{number}", "labels": {"maze-retrain/group": group}}
    return {"metadata": metadata, "spec": spec, "status": status}


@dataclass
class Site:
    """A cluster with its machines, and the pipeline's way to it."""

    kubernetes: FakeKubernetes
    settings: KubeRaySettings
    server: ServerSettings
    said: list[str] = field(default_factory=list)
    passed_s: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.passed_s += seconds

    def hosting(self, **changes: Any) -> AnyKubernetes:
        settings = self.settings.model_copy(update=changes)
        return AnyKubernetes(settings, KubeRay(settings.kubeconfig), self.sleep, clock=lambda: self.passed_s)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("PROJECT_DIR", "/project")
    run = settings_of("plan/kuberay")
    with kubernetes_api(tmp_path) as (kubernetes, kubeconfig):
        settings = run.hosting.model_copy(update={"kubeconfig": kubeconfig, "train_image": "", "serve_image": ""})
        kubernetes.nodes = [machine("cpu", 0, 30, 120, 0), machine("serve-gpu", 0, 30, 240, 2)]
        kubernetes.nodes += [machine("gpu", number, 30, 240, 2) for number in range(3)]
        kubernetes.script = [{}, READY]
        yield Site(kubernetes, settings, run.serve.server)


def held_back(site: Site) -> None:
    """What Kueue's webhook does with a new RayCluster of a queue, and the Workload that it makes for it."""
    cluster = site.kubernetes.things[CLUSTER]
    cluster["spec"]["suspend"] = True
    condition = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": NO_QUOTA}
    owner = {"ownerReferences": [{"uid": cluster["metadata"]["uid"]}]}
    site.kubernetes.workloads = [{"metadata": owner, "status": {"conditions": [condition]}}]


def test_a_run_makes_both_clusters_and_nothing_else_and_takes_its_own_away(site: Site) -> None:
    site.kubernetes.service_status = APP_RUNS
    hosting = site.hosting()
    hosting.make_room(Owner("r"), site.server, IMAGES, site.said.append)
    hosting.training_up(Owner("r"), IMAGES, site.said.append)
    assert all(check.look() for check in hosting.checks("", ""))
    hosting.training_down(Owner("r"), site.said.append)
    assert site.kubernetes.changes == [
        "create rayservices maze/visgym-llm",
        "create rayclusters maze/skyrl-visgym",
        "delete rayclusters maze/skyrl-visgym Foreground",
    ]
    parts = [RayResources("serving", site.settings, lambda: KubeRay(site.settings.kubeconfig), Order())]
    (left,) = clean(parts, (), "r", dry_run=False, say=site.said.append)
    assert (left.name, left.usd_per_h) == ("RayService maze/visgym-llm", 0.0)


def test_nothing_of_aws_is_in_its_documents(site: Site) -> None:
    documents = [ray_cluster(site.settings, "r", "i"), ray_service(site.settings, site.server, "i")]
    text = "".join(map(as_yaml, documents)).lower()
    assert not [word for word in ("aws", "sagemaker", "ml.") if word in text]


def test_secrets_tolerations_and_priority_reach_every_pod_and_the_queue_the_cluster_that_trains(site: Site) -> None:
    workers = site.settings.workers.model_copy(update={"tolerations": (Toleration(key="team", effect="NoExecute"),)})
    named = {"image_pull_secret": "registry", "priority_class": "batch", "queue": "gpus", "workers": workers}
    settings = site.settings.model_copy(update=named)
    cluster, service = ray_cluster(settings, "r", "i"), ray_service(settings, site.server, "i")
    assert cluster["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "gpus", "maze-retrain/run": "r"}
    assert "labels" not in service["metadata"]
    for spec in (cluster["spec"], service["spec"]["rayClusterConfig"]):
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            pod = group["template"]["spec"]
            assert pod["imagePullSecrets"] == [{"name": "registry"}]
            assert pod["priorityClassName"] == "batch"
            assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "maze-s3"}}]
            assert "serviceAccountName" not in pod
    (group,) = cluster["spec"]["workerGroupSpecs"]
    assert group["template"]["spec"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "team", "operator": "Exists", "effect": "NoExecute"},
    ]


def test_a_cluster_that_kueue_holds_back_waits_and_says_why_until_it_is_let_in(site: Site) -> None:
    site.kubernetes.created = lambda: held_back(site)
    site.kubernetes.script = [READY]
    hosting = site.hosting(queue="gpus")
    hosting._sleep = lambda seconds: site.kubernetes.things[CLUSTER]["spec"].pop("suspend", None)
    hosting.training_up(Owner("r"), IMAGES, site.said.append)
    waits = f"it waits in Kueue's queue gpus and has no pods until it is let in; {NO_QUOTA}"
    assert [line for line in site.said if "Kueue" in line] == [f"RayCluster maze/skyrl-visgym: {waits}"]


def test_a_cluster_that_is_never_let_in_ends_the_wait_at_its_deadline_with_kueue_s_words(site: Site) -> None:
    site.kubernetes.created = lambda: held_back(site)
    wanted = r"not ready after 60 s: it waits in Kueue's queue gpus .*insufficient unused quota"
    with pytest.raises(ClusterNotReady, match=wanted):
        site.hosting(queue="gpus", ready_timeout_s=60.0).training_up(Owner("r"), IMAGES, site.said.append)
    assert 60 <= site.passed_s <= 60 + site.settings.poll_s


def test_what_kueue_put_into_the_pods_of_a_cluster_that_it_let_in_stays_there(site: Site) -> None:
    site.hosting(queue="gpus").training_up(Owner("r", "f-1"), IMAGES, site.said.append)
    pod = site.kubernetes.things[CLUSTER]["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    pod["nodeSelector"]["flavor"] = "reserved"
    site.hosting(queue="gpus").training_up(Owner("r", "f-2"), IMAGES, site.said.append)
    made = site.kubernetes.things[CLUSTER]
    assert made["metadata"]["annotations"]["maze-retrain/flow-run"] == "f-2"
    assert made["spec"]["workerGroupSpecs"][0]["template"]["spec"]["nodeSelector"]["flavor"] == "reserved"


def test_machines_that_others_hold_refuse_a_run_unless_a_queue_decides_when(site: Site) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "20"}}}
    other = {"metadata": {"name": "other", "namespace": "them"}, "spec": {"nodeName": "gpu-1"}, "status": {}}
    other["spec"]["containers"] = [container]  # type: ignore[index]
    site.kubernetes.others = [other]
    with pytest.raises(ClusterNotReady, match=r"skyrl-visgym-gpu-3 .* has no place: .*them/other holds 20 CPUs"):
        site.hosting().training_up(Owner("r"), IMAGES, site.said.append)
    site.hosting(queue="gpus").training_up(Owner("r"), IMAGES, site.said.append)
    too_large = site.settings.workers.model_copy(update={"num_gpus": 4})
    with pytest.raises(ClusterNotReady, match=r"has no place: .*2 of 4 GPUs free"):
        site.hosting(queue="gpus", workers=too_large).training_up(Owner("s"), IMAGES, site.said.append)


def test_rights_are_asked_for_with_kueue_s_where_there_is_a_queue(site: Site) -> None:
    site.kubernetes.denied = {"list workloads", "list nodes"}
    remedy = "list nodes in all namespaces; `kubectl apply -f docker/role-kuberay.yaml`"
    with pytest.raises(ClusterNotReady, match=f"it may not {remedy}"):
        site.hosting().training_up(Owner("r"), IMAGES, site.said.append)
    with pytest.raises(ClusterNotReady, match=f"it may not list workloads in maze, {remedy}"):
        site.hosting(queue="gpus").training_up(Owner("r"), IMAGES, site.said.append)


def test_the_context_that_is_named_is_taken_and_without_a_kubeconfig_the_pod_s_own_account(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = json.loads(Path(site.settings.kubeconfig).read_text())
    document["current-context"] = "elsewhere"
    several = tmp_path / "several"
    several.write_text(json.dumps(document))
    named = site.settings.model_copy(update={"kubeconfig": str(several), "context": "maze"})
    assert all(check.look() for check in hosting_of(named).checks("", "")[:1])
    with pytest.raises(KubernetesUnreachable, match=r"several, context other, gives no connection"):
        hosting_of(named.model_copy(update={"context": "other"}))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubernetesUnreachable, match=r"is empty, and this process runs in no pod .*; name a file"):
        hosting_of(named.model_copy(update={"kubeconfig": ""}))
