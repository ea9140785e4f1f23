"""The AWS clusters against loopback servers that speak the Kubernetes, EKS and SageMaker APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from flows.deployments import load_settings
from serving.settings import ServerSettings
from tasks.checks import ToCheck, run_checks
from tasks.cleanup.in_aws import Identity, Machines, RayResources
from tasks.cleanup.order import Order
from tasks.cleanup.parts import Leftover, LeftPart, clean
from tasks.cluster.aws import HyperPodMachines, PodIdentity
from tasks.cluster.hosting import HyperPod, hosting_of
from tasks.cluster.kuberay import KubeRay
from tasks.cluster.manifests import ray_cluster
from tasks.cluster.owners import Owner
from tasks.cluster.settings import HyperPodSettings, KeptClusters
from tasks.errors import AwsRefused, ClusterNotReady, KubernetesRefused, RolloutFailed
from tasks.records import ImageRef
from tasks.run import Attempt
from tests.unit.cluster.aws_api import FakeAws, aws_api
from tests.unit.cluster.kube_api import FakeKubernetes, kubernetes_api, node, pod
from tests.unit.cluster.test_kuberay import READY

IMAGES = {
    name: ImageRef(uri=f"registry/{name}@sha256:{'b' * 64}", sha256="b" * 64, content="ctx-1")
    for name in ("train", "serve")
}
BY_HAND = Order()
START, HOUR = datetime(2026, 11, 30, tzinfo=UTC), timedelta(hours=1)
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


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    monkeypatch.setenv("PROJECT_DIR", str(Path.cwd()))
    run = load_settings("retrain/hyperpod", {})
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


def test_the_identity_is_there_before_the_pods_and_a_second_time_changes_nothing(account: Account) -> None:
    account.hosting().training_up(Owner("r"), IMAGES, account.said.append)
    assert account.slept[0] == account.settings.identity_settle_s
    account.hosting().training_up(Owner("r"), IMAGES, account.said.append)
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
    account.hosting().training_up(Owner("r"), IMAGES, account.said.append)
    assert account.identity.role("maze", "maze-ray") == account.settings.role_arn
    assert account.aws.changes == ["POST a-1", "POST a-1"]


def test_a_role_that_somebody_else_associated_is_neither_changed_nor_removed(account: Account) -> None:
    old = "arn:aws:iam::123456789012:role/theirs"
    account.aws.pod_identity("POST", None, {"namespace": "maze", "serviceAccount": "maze-ray", "roleArn": old}, {})
    account.aws.changes.clear()
    with pytest.raises(ClusterNotReady, match=r"is associated with .*/theirs, wanted .*/maze-ray, .* did not do that"):
        account.hosting().training_up(Owner("r"), IMAGES, account.said.append)
    (left,) = clean(account.parts()[2:3], ("identity",), "r", dry_run=False, say=account.said.append)
    assert left.keep == "it was not made by this pipeline"
    assert account.aws.changes == []
    account.hosting(take_over=True).training_up(Owner("r"), IMAGES, account.said.append)
    assert account.aws.changes == ["POST a-1"]


def test_a_pod_that_was_admitted_too_early_is_made_again(account: Account) -> None:
    account.kubernetes.pods[2] = pod("ray-worker-1", identity=False)
    account.kubernetes.successors = [pod("ray-worker-9")]
    account.hosting().training_up(Owner("r"), IMAGES, account.said.append)
    assert "delete pods maze/ray-worker-1" in account.kubernetes.changes


def test_an_identity_that_successors_do_not_get_either_is_an_error(account: Account) -> None:
    account.kubernetes.pods[2] = pod("ray-worker-1", identity=False)
    account.kubernetes.successors = [pod("ray-worker-9", identity=False)]
    with pytest.raises(ClusterNotReady, match="no AWS identity, made anew or not: ray-worker-9; is the add-on"):
        account.hosting().training_up(Owner("r"), IMAGES, account.said.append)


def _updating(account: Account) -> None:
    account.aws.cluster_status = "Updating"


def _one_machine_fails(account: Account) -> None:
    account.aws.machines[5]["InstanceStatus"] = {"Status": "Failure", "Message": "EFA is down"}


def _another_type(account: Account) -> None:
    account.aws.machines[3]["InstanceType"] = "ml.g5.12xlarge"


def _sick_node(account: Account) -> None:
    account.kubernetes.nodes[4] = node("gpu-1", "ml.g7e.12xlarge", 2, health="UnschedulablePendingReplacement")


def _may_not_patch(account: Account) -> None:
    account.kubernetes.denied = {"patch rayclusters", "list nodes"}


def _lost_gpu(account: Account) -> None:
    account.kubernetes.nodes[5] = node("gpu-2", "ml.g7e.12xlarge", 1)


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (_updating, r"in service: it is Updating; wait for its update or recovery"),
        (_one_machine_fails, r"gpu-workers: 2 of 3 machines run \(.*Failure EFA is down\); raise the groups'"),
        (_another_type, "gpu-workers has ml.g5.12xlarge, wanted ml.g7e.12xlarge"),
        (_sick_node, r"2 of 3 ml.g7e.12xlarge can be used \(.*UnschedulablePendingReplacement.*\); look at the node's"),
        (
            _may_not_patch,
            "it may not patch rayclusters in maze, list nodes in all namespaces; `kubectl apply -f docker/role.yaml`",
        ),
        (_lost_gpu, r"2 of 3 ml.g7e.12xlarge can be used \(.*gpu-2: ready, Schedulable, 1 GPUs"),
    ],
)
def test_machines_are_looked_at_before_a_cluster_is_made(
    account: Account, breaks: Callable[[Account], None], message: str
) -> None:
    breaks(account)
    with pytest.raises(ClusterNotReady, match=message):
        account.hosting().training_up(Owner("r"), IMAGES, account.said.append)
    assert account.kubernetes.changes == []


def outcome(probes: list[ToCheck]) -> dict[str, str]:
    return {check.name: "" if check.holds else check.found for check in run_checks(probes, 5.0)}


def test_cluster_and_pods_are_looked_at_before_a_job_is_submitted(account: Account) -> None:
    allowed = "Kubernetes lets this identity do what the run will ask"
    places = "every pod has a place, in training and in serving"
    ready, identified = "the RayCluster is ready", "its pods have their AWS identity"
    found = outcome(account.hosting().checks(serve_dashboard="", listen=""))
    assert found == {
        allowed: "",
        ready: "it does not exist",
        identified: "maze/maze-ray is associated with no role",
        places: "",
    }
    account.hosting().training_up(Owner("r"), IMAGES, account.said.append)
    assert outcome(account.hosting().checks(serve_dashboard="", listen="")) == {
        allowed: "",
        ready: "",
        identified: "",
        places: "",
    }
    account.kubernetes.pods[0] = pod("ray-head", identity=False)
    assert outcome(account.hosting().checks(serve_dashboard="", listen=""))[identified] == (
        "made before the association: ray-head"
    )


def test_a_refusal_of_aws_names_the_operation(account: Account) -> None:
    account.aws.refusal = (403, "AccessDeniedException", "not you")
    with pytest.raises(AwsRefused, match="ListPodIdentityAssociations was refused: AccessDeniedException: not you"):
        account.identity.ensure("maze", "maze-ray", account.settings.role_arn)


def test_an_association_that_is_gone_by_the_time_it_is_removed_is_removed(account: Account) -> None:
    account.identity.ensure("maze", "maze-ray", account.settings.role_arn)
    look = account.identity._look
    account.identity._look = lambda *asked: (look(*asked), account.aws.associations.clear())[0]  # type: ignore[method-assign]
    assert account.identity.remove("maze", "maze-ray")
    assert not account.identity.remove("maze", "maze-ray")
    account.aws.refusal = (403, "AccessDeniedException", "not you")
    with pytest.raises(AwsRefused):
        account.identity.remove("maze", "maze-ray")


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


def test_a_service_that_the_operator_will_not_have_ends_the_wait_at_once(account: Account) -> None:
    key = ("maze", "rayservices", "visgym-llm")
    account.kubernetes.created = lambda: account.kubernetes.tell(key, "InvalidRayServiceMetadata", "no DNS1035 label")
    with pytest.raises(RolloutFailed, match="visgym-llm will not come up: InvalidRayServiceMetadata: no DNS1035 label"):
        account.hosting().serving_up(account.server, IMAGES, account.said.append)


def test_a_run_takes_down_its_own_cluster_and_no_other_one_s(account: Account) -> None:
    account.kube.apply(ray_cluster(account.settings, "another", "i"))
    account.hosting().training_down(Owner("r"), account.said.append)
    assert account.said == ["RayCluster maze/skyrl-visgym: it belongs to run another"]
    account.hosting().training_down(Owner("another"), account.said.append)
    account.hosting().training_down(Owner("another"), account.said.append)
    assert account.said[-2:] == ["RayCluster maze/skyrl-visgym: gone", "RayCluster maze/skyrl-visgym: not there"]


OTHER_IMAGES = {"train": IMAGES["train"].model_copy(update={"uri": f"registry/train@sha256:{'c' * 64}"})}


def _nobodys(account: Account) -> None:
    account.kube.apply(ray_cluster(account.settings, "r", IMAGES["train"].uri))
    account.kubernetes.things[("maze", "rayclusters", "skyrl-visgym")]["metadata"]["labels"] = {"team": "vision"}


def _another_run_s(account: Account) -> None:
    account.hosting().training_up(Owner("nightly"), IMAGES, account.said.append)


def _its_own_with_other_pods(account: Account) -> None:
    account.hosting().training_up(Owner("r"), OTHER_IMAGES, account.said.append)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (_another_run_s, "belongs to run nightly, not to r; clean up after its owner"),
        (_nobodys, r"belongs to nobody of ours \(it has no label maze-retrain/run\), not to r"),
        (_its_own_with_other_pods, "runs other pods than are wanted; .* or set hosting.take_over"),
    ],
)
def test_a_cluster_that_is_not_the_run_s_own_is_refused_before_anything_changes(
    account: Account, made: Callable[[Account], None], message: str
) -> None:
    made(account)
    before = (list(account.kubernetes.changes), list(account.aws.changes))
    with pytest.raises(ClusterNotReady, match=message):
        account.hosting().training_up(Owner("r"), IMAGES, account.said.append)
    assert (account.kubernetes.changes, account.aws.changes) == before


@pytest.mark.parametrize("made", [_another_run_s, _nobodys])
def test_clean_up_leaves_a_cluster_that_is_not_the_run_s_own(account: Account, made: Callable[[Account], None]) -> None:
    made(account)
    account.kubernetes.changes.clear()
    account.hosting().training_down(Owner("r"), account.said.append)
    left = clean(account.parts(), ("training",), "r", dry_run=False, say=account.said.append)
    assert [thing.keep[:14] for thing in left if thing.part == "training"] == ["it belongs to "]
    assert account.kubernetes.changes == []


def test_taking_over_relabels_equal_pods_and_makes_others_anew(account: Account) -> None:
    hosting, cluster = account.hosting(take_over=True), "rayclusters maze/skyrl-visgym"
    _another_run_s(account)
    account.kubernetes.changes.clear()
    hosting.training_up(Owner("r"), IMAGES, account.said.append)
    assert account.kubernetes.changes == [f"patch {cluster}"]
    assert "RayCluster maze/skyrl-visgym belonged to run nightly: taken over by r" in account.said
    account.kubernetes.changes.clear()
    hosting.training_up(Owner("r"), OTHER_IMAGES, account.said.append)
    assert account.kubernetes.changes == [f"delete {cluster} Foreground", f"create {cluster}"]


def test_a_run_that_comes_between_the_look_and_the_change_keeps_its_cluster(account: Account) -> None:
    theirs = ray_cluster(account.settings, "nightly", "i")
    account.hosting().training_up(Owner("r"), IMAGES, account.said.append)
    account.kubernetes.things.clear()
    account.kubernetes.meanwhile = lambda: account.kubernetes.create("maze", "rayclusters", theirs)
    with pytest.raises(ClusterNotReady, match=r"belongs to run nightly, not to r"):
        account.hosting().training_up(Owner("r"), IMAGES, account.said.append)


def test_a_cluster_that_is_taken_over_while_it_is_cleaned_up_stays(account: Account) -> None:
    account.hosting().training_up(Owner("r"), IMAGES, account.said.append)
    key = ("maze", "rayclusters", "skyrl-visgym")
    label = {"metadata": {"labels": {"maze-retrain/run": "nightly"}}}
    account.kubernetes.meanwhile = lambda: account.kubernetes.patch(key, label)
    with pytest.raises(ExceptionGroup) as caught:
        clean(account.parts(), ("training",), "r", dry_run=False, say=account.said.append)
    assert "it belongs to run nightly, since a moment ago" in str(caught.value.exceptions[0])
    assert key in account.kubernetes.things


def test_a_late_order_leaves_the_cluster_that_the_next_attempt_uses(account: Account) -> None:
    first, second = Attempt("f-1", "FAILED", True, START), Attempt("f-2", "RUNNING", False, START + HOUR)
    late = Order("f-1", (first, second))
    for attempt, changes in (("f-1", ["create"]), ("f-1", []), ("f-2", ["patch"])):
        account.kubernetes.changes.clear()
        account.hosting().training_up(Owner("r", attempt), IMAGES, account.said.append)
        assert [line.partition(" ray")[0] for line in account.kubernetes.changes if "rayclusters" in line] == changes
    left = clean(account.parts(late), ("training",), "r", dry_run=False, say=account.said.append)
    training = [thing.keep for thing in left if thing.part == "training"]
    assert training == ["it belongs to flow run f-2, not to f-1 that ended"]
    account.hosting().training_down(Owner("r", "f-1"), account.said.append)
    assert account.said[-1] == "RayCluster maze/skyrl-visgym: it belongs to flow run f-2 now"
    account.hosting().training_down(Owner("r", "f-2"), account.said.append)
    assert account.said[-1] == "RayCluster maze/skyrl-visgym: gone"


def test_what_kubernetes_or_aws_do_not_tell_is_listed_with_its_price_assumed(account: Account) -> None:
    account.kubernetes.refusal = (403, "Forbidden", "not you")
    account.aws.refusal = (403, "AccessDeniedException", "not you")
    left: list[Leftover] = []
    with pytest.raises(ExceptionGroup, match="clean-up of r is not complete") as caught:
        clean(account.parts(), ("training",), "r", dry_run=False, say=account.said.append, left=left)
    assert [(thing.part, thing.found, thing.usd_per_h) for thing in left] == [
        ("serving", "not looked at", 4.66),
        ("training", "not looked at", 36.61),
        ("identity", "not looked at", 0.0),
        ("machines", "not looked at", 5.53),
        ("machines", "not looked at", 31.08),
        ("machines", "not looked at", 0.46),
        ("machines", "not looked at", 4.2),
    ]
    assert [type(error) for error in caught.value.exceptions] == [KubernetesRefused] * 2 + [AwsRefused] * 2


def test_a_service_of_somebody_else_is_neither_replaced_nor_cleaned_up(account: Account) -> None:
    theirs = {"kind": "RayService", "metadata": {"name": "visgym-llm", "namespace": "maze"}, "spec": {}}
    account.kubernetes.create("maze", "rayservices", theirs)
    account.kubernetes.changes.clear()
    with pytest.raises(RolloutFailed, match=r"was not made by this pipeline; choose another hosting.serve_name"):
        account.hosting(replace_serving=True).serving_up(account.server, IMAGES, account.said.append)
    (left,) = clean(account.parts()[:1], ("serving",), "r", dry_run=False, say=account.said.append)
    assert left.keep == "it was not made by this pipeline"
    assert account.kubernetes.changes == []


def test_clean_up_goes_in_order_twice_and_tells_what_goes_on_costing(account: Account) -> None:
    account.kubernetes.service_status = APP_RUNS
    account.hosting().training_up(Owner("r"), IMAGES, account.said.append)
    account.hosting().serving_up(account.server, IMAGES, account.said.append)
    account.kubernetes.changes.clear()
    everything = ("training", "serving", "identity", "machines")
    looked = clean(account.parts(), everything, "r", dry_run=True, say=account.said.append)
    assert [(left.part, left.usd_per_h) for left in looked] == [
        ("serving", 4.66), ("training", 36.61), ("identity", 0.0),
        ("machines", 5.53), ("machines", 31.08), ("machines", 0.46), ("machines", 4.2),
    ]  # fmt: skip
    assert account.kubernetes.changes == []
    for _ in range(2):
        left = clean(account.parts(), everything, "r", dry_run=False, say=account.said.append)
        assert [(thing.name, thing.usd_per_h) for thing in left] == [
            ("head", 5.53), ("gpu-workers", 31.08), ("serve-head", 0.46), ("serve-gpu", 4.2)
        ]  # fmt: skip
    assert account.kubernetes.changes == [
        "delete rayservices maze/visgym-llm Foreground",
        "delete rayclusters maze/skyrl-visgym Foreground",
    ]
    assert account.aws.changes == ["POST a-1", "DELETE a-1"]


def test_clusters_of_others_are_never_touched() -> None:
    said: list[str] = []
    hosting = hosting_of(KeptClusters())
    hosting.training_up(Owner("r"), {}, said.append)
    hosting.training_down(Owner("r"), said.append)
    assert said == ["the training cluster is kept outside this pipeline"] * 2
