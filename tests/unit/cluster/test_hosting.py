"""The AWS clusters against loopback servers that speak the Kubernetes, EKS and SageMaker APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest

from flows.deployments import load_deployment
from serving.settings import ServerSettings
from tasks.checks import ToCheck, run_checks
from tasks.cleanup.in_aws import Identity, Machines, RayResources
from tasks.cleanup.parts import LeftPart, clean
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.hosting import HyperPod, hosting_of
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.manifests import ray_cluster
from tasks.cluster.settings import HyperPodSettings, KeptClusters
from tasks.errors import AwsRefused, ClusterNotReady, RolloutFailed
from tasks.records import ImageRef
from tests.unit.cluster.aws_api import FakeAws, aws_api
from tests.unit.cluster.kube_api import FakeKubernetes, kubernetes_api, node, pod
from tests.unit.cluster.test_kuberay import READY

IMAGES = {
    name: ImageRef(uri=f"registry/{name}@sha256:{'b' * 64}", sha256="b" * 64, content="ctx-1")
    for name in ("train", "serve")
}
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

    def parts(self) -> list[LeftPart]:
        return [
            RayResources("serving", self.settings, self.kube),
            RayResources("training", self.settings, self.kube),
            Identity(self.settings, self.identity),
            Machines(self.settings, self.machines),
        ]


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    monkeypatch.setenv("PROJECT_DIR", str(Path.cwd()))
    run = load_deployment("retrain/hyperpod", {})[1]["settings"]
    with kubernetes_api(tmp_path) as (kubernetes, kubeconfig), aws_api() as (aws, endpoint):
        settings = run.hosting.model_copy(update={"kubeconfig": kubeconfig, "poll_s": 0.0, "ready_timeout_s": 5.0})
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": settings.region}
        identity = PodIdentity(settings.region, "maze-eks", boto3.client("eks", endpoint_url=endpoint, **keys))
        sagemaker = boto3.client("sagemaker", endpoint_url=endpoint, **keys)
        machines = HyperPodMachines(settings.region, "maze", sagemaker)
        aws.add_machine("head", "ml.r5d.16xlarge")
        kubernetes.nodes = [node("head", "ml.r5d.16xlarge", 0)]
        for number in range(3):
            aws.add_machine("gpu-workers", "ml.g7e.12xlarge")
            kubernetes.nodes.append(node(f"gpu-{number}", "ml.g7e.12xlarge", 2))
        kubernetes.pods = [pod("ray-head"), *(pod(f"ray-worker-{number}") for number in range(3))]
        kubernetes.script = [{}, READY]
        yield Account(kubernetes, aws, settings, run.serve.server, KubeRay(kubeconfig), identity, machines)


def test_the_identity_is_there_before_the_pods_and_a_second_time_changes_nothing(account: Account) -> None:
    account.hosting().training_up("r", IMAGES, account.said.append)
    assert account.slept[0] == account.settings.identity_settle_s
    account.hosting().training_up("r", IMAGES, account.said.append)
    assert account.slept.count(account.settings.identity_settle_s) == 1
    assert account.aws.changes == ["POST a-1"]
    assert account.kubernetes.changes == [
        "create serviceaccounts maze/maze-ray",
        "create rayclusters maze/skyrl-visgym",
    ]
    assert account.said[-1] == "RayCluster maze/skyrl-visgym is ready: 3 workers, 6 GPUs"
    made = account.kube.look("RayCluster", "maze", "skyrl-visgym")
    assert made
    (container,) = made["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGES["train"].uri


def test_another_role_is_put_in_place_of_the_old_one(account: Account) -> None:
    account.identity.ensure("maze", "maze-ray", "arn:aws:iam::123456789012:role/old")
    account.hosting().training_up("r", IMAGES, account.said.append)
    assert account.identity.role("maze", "maze-ray") == account.settings.role_arn
    assert account.aws.changes == ["POST a-1", "POST a-1"]


def test_a_pod_that_was_admitted_too_early_is_made_again(account: Account) -> None:
    account.kubernetes.pods[2] = pod("ray-worker-1", identity=False)
    account.kubernetes.successors = [pod("ray-worker-9")]
    account.hosting().training_up("r", IMAGES, account.said.append)
    assert "delete pods maze/ray-worker-1" in account.kubernetes.changes


def test_an_identity_that_successors_do_not_get_either_is_an_error(account: Account) -> None:
    account.kubernetes.pods[2] = pod("ray-worker-1", identity=False)
    account.kubernetes.successors = [pod("ray-worker-9", identity=False)]
    with pytest.raises(ClusterNotReady, match="no AWS identity, made anew or not: ray-worker-9; is the add-on"):
        account.hosting().training_up("r", IMAGES, account.said.append)


def _updating(account: Account) -> None:
    account.aws.cluster_status = "Updating"


def _one_machine_fails(account: Account) -> None:
    account.aws.machines[3]["InstanceStatus"] = {"Status": "Failure", "Message": "EFA is down"}


def _another_type(account: Account) -> None:
    account.aws.machines[1]["InstanceType"] = "ml.g5.12xlarge"


def _sick_node(account: Account) -> None:
    account.kubernetes.nodes[2] = node("gpu-1", "ml.g7e.12xlarge", 2, health="UnschedulablePendingReplacement")


def _lost_gpu(account: Account) -> None:
    account.kubernetes.nodes[3] = node("gpu-2", "ml.g7e.12xlarge", 1)


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (_updating, r"in service: Unready: it is Updating; wait for its update or recovery"),
        (_one_machine_fails, r"gpu-workers: 2 of 3 machines run \(.*Failure EFA is down\); raise the groups'"),
        (_another_type, "gpu-workers has ml.g5.12xlarge, wanted ml.g7e.12xlarge"),
        (_sick_node, r"2 of 3 ml.g7e.12xlarge can be used \(.*UnschedulablePendingReplacement.*\); look at the node's"),
        (_lost_gpu, r"2 of 3 ml.g7e.12xlarge can be used \(.*gpu-2: ready, Schedulable, 1 GPUs"),
    ],
)
def test_machines_are_looked_at_before_a_cluster_is_made(
    account: Account, breaks: Callable[[Account], None], message: str
) -> None:
    breaks(account)
    with pytest.raises(ClusterNotReady, match=message):
        account.hosting().training_up("r", IMAGES, account.said.append)
    assert account.kubernetes.changes == []


def outcome(probes: list[ToCheck]) -> dict[str, str]:
    return {check.name: "" if check.holds else check.found for check in run_checks(probes, 5.0)}


def test_cluster_and_pods_are_looked_at_before_a_job_is_submitted(account: Account) -> None:
    ready, identified = "the RayCluster is ready", "its pods have their AWS identity"
    found = outcome(account.hosting().checks(serve_dashboard="", listen=""))
    assert found == {
        ready: "Unready: it does not exist",
        identified: "Unready: maze/maze-ray is associated with no role",
    }
    account.hosting().training_up("r", IMAGES, account.said.append)
    assert outcome(account.hosting().checks(serve_dashboard="", listen="")) == {ready: "", identified: ""}
    account.kubernetes.pods[0] = pod("ray-head", identity=False)
    assert outcome(account.hosting().checks(serve_dashboard="", listen=""))[identified] == (
        "Unready: made before the association: ray-head"
    )


def test_a_refusal_of_aws_names_the_operation(account: Account) -> None:
    account.aws.refusal = (403, "AccessDeniedException", "not you")
    with pytest.raises(AwsRefused, match="ListPodIdentityAssociations was refused: AccessDeniedException: not you"):
        account.identity.ensure("maze", "maze-ray", account.settings.role_arn)


def test_serving_comes_up_once_and_other_pods_are_never_slipped_in(account: Account) -> None:
    hosting = account.hosting()
    account.kubernetes.service_status = APP_RUNS
    hosting.serving_up(account.server, IMAGES, account.said.append)
    hosting.serving_up(account.server, IMAGES, account.said.append)
    assert account.kubernetes.changes.count("create rayservices maze/visgym-llm") == 1
    other = {"serve": IMAGES["serve"].model_copy(update={"uri": f"registry/serve@sha256:{'c' * 64}"})}
    with pytest.raises(RolloutFailed, match=r"runs other pods than this run wants .*; set hosting.replace_serving"):
        hosting.serving_up(account.server, other, account.said.append)
    account.hosting(replace_serving=True).serving_up(account.server, other, account.said.append)
    assert account.kubernetes.changes[-3:] == [
        "create rayservices maze/visgym-llm",
        "delete rayservices maze/visgym-llm Foreground",
        "create rayservices maze/visgym-llm",
    ]


def test_a_service_that_fails_says_what_its_replicas_said(account: Account) -> None:
    part = {"status": "UNHEALTHY", "message": "CUDA out of memory"}
    failed = {"status": "DEPLOY_FAILED", "message": "", "serveDeploymentStatuses": {"AdapterServer": part}}
    account.kubernetes.service_status = {"pendingServiceStatus": {"applicationStatuses": {"llm": failed}}}
    with pytest.raises(RolloutFailed, match="llm is DEPLOY_FAILED; AdapterServer: CUDA out of memory"):
        account.hosting().serving_up(account.server, IMAGES, account.said.append)


def test_a_run_takes_down_its_own_cluster_and_no_other_one_s(account: Account) -> None:
    account.kube.apply(ray_cluster(account.settings, "another", "i"))
    account.hosting().training_down("r", account.said.append)
    assert account.said == ["RayCluster maze/skyrl-visgym belongs to another: left alone"]
    account.hosting().training_down("another", account.said.append)
    account.hosting().training_down("another", account.said.append)
    assert account.said[-2:] == ["RayCluster maze/skyrl-visgym: gone", "RayCluster maze/skyrl-visgym: not there"]


def test_clean_up_goes_in_order_twice_and_tells_what_goes_on_costing(account: Account) -> None:
    account.kubernetes.service_status = APP_RUNS
    account.hosting().training_up("r", IMAGES, account.said.append)
    account.hosting().serving_up(account.server, IMAGES, account.said.append)
    account.kubernetes.changes.clear()
    everything = ("training", "serving", "identity", "machines")
    looked = clean(account.parts(), everything, "r", dry_run=True, say=account.said.append)
    assert [(left.part, left.usd_per_h) for left in looked] == [
        ("serving", 15.89), ("training", 36.61), ("identity", 0.0), ("machines", 5.53), ("machines", 31.08)
    ]  # fmt: skip
    assert account.kubernetes.changes == []
    for _ in range(2):
        left = clean(account.parts(), everything, "r", dry_run=False, say=account.said.append)
        assert [(thing.name, thing.usd_per_h) for thing in left] == [("head", 5.53), ("gpu-workers", 31.08)]
    assert account.kubernetes.changes == [
        "delete rayservices maze/visgym-llm Foreground",
        "delete rayclusters maze/skyrl-visgym Foreground",
    ]
    assert account.aws.changes == ["POST a-1", "DELETE a-1"]


def test_clusters_of_others_are_never_touched() -> None:
    said: list[str] = []
    hosting = hosting_of(KeptClusters())
    hosting.training_up("r", {}, said.append)
    hosting.training_down("r", said.append)
    assert said == ["the training cluster is kept outside this pipeline"] * 2
