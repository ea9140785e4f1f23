"""Whose a RayCluster is: refused, taken over, taken down and cleaned up by its owner alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tasks.cleanup.order import Order
from tasks.cleanup.parts import Leftover, clean
from tasks.cluster.manifests import ray_cluster
from tasks.cluster.owners import Owner
from tasks.errors import AwsRefused, ClusterNotReady, KubernetesRefused, RolloutFailed
from tasks.run import Attempt
from tests.unit.cluster.account import APP_RUNS, IMAGES, OTHER_IMAGES, Account
from tests.unit.cluster.account import account as account

START, HOUR = datetime(2026, 11, 30, tzinfo=UTC), timedelta(hours=1)


def test_a_run_takes_down_its_own_cluster_and_no_other_one_s(account: Account) -> None:
    account.kube.apply(ray_cluster(account.settings, "another", "i"))
    account.hosting().training_down(Owner("r"), account.said.append)
    assert account.said == ["RayCluster maze/skyrl-visgym: it belongs to run another"]
    account.hosting().training_down(Owner("another"), account.said.append)
    account.hosting().training_down(Owner("another"), account.said.append)
    assert account.said[-2:] == ["RayCluster maze/skyrl-visgym: gone", "RayCluster maze/skyrl-visgym: not there"]


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
