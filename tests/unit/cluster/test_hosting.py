"""The AWS clusters brought up, against loopback servers that speak the Kubernetes, EKS and SageMaker APIs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tasks.checks import ToCheck, run_checks
from tasks.cleanup.parts import clean
from tasks.cluster.hosting import hosting_of
from tasks.cluster.owners import Owner
from tasks.cluster.settings import KeptClusters
from tasks.errors import AwsRefused, ClusterNotReady, RolloutFailed
from tests.unit.cluster.account import APP_RUNS, IMAGES, Account
from tests.unit.cluster.account import account as account
from tests.unit.cluster.kube_api import node, pod


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


def test_clusters_of_others_are_never_touched() -> None:
    said: list[str] = []
    hosting = hosting_of(KeptClusters())
    hosting.training_up(Owner("r"), {}, said.append)
    hosting.training_down(Owner("r"), said.append)
    assert said == ["the training cluster is kept outside this pipeline"] * 2
