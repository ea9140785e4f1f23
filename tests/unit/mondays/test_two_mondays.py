"""Two scheduled runs, a week apart, on a cluster with just the machines that were bought; and what breaks between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import ClusterNotReady, KubernetesRefused, RolloutFailed, StageError, TrainingJobFailed
from tests.simulated_cluster.api import simulated_cluster
from tests.unit.cluster.aws_api import aws_api
from tests.unit.mondays.week import SHARED, Week, image

pytestmark = pytest.mark.slow_s(60)
OWN = ("head", "gpu-workers", "serve-head", "serve-gpu")


def weeks(folder: Path, monkeypatch: pytest.MonkeyPatch, operator: str = "1.7") -> Iterator[Week]:
    monkeypatch.setenv("PROJECT_DIR", str(Path.cwd()))
    with simulated_cluster(folder, operator) as (world, kubeconfig), aws_api() as (aws, endpoint):
        yield Week(world, aws, endpoint, kubeconfig, monkeypatch)


@pytest.fixture
def week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Week]:
    yield from weeks(tmp_path, monkeypatch)


def test_two_mondays_with_machines_that_serve_alone(week: Week) -> None:
    week.buy(*OWN)
    answered: list[str] = []
    week.in_training = lambda: answered.append(week.endpoint())
    week.run("monday-1")
    week.go_to(7)
    week.run("monday-2")
    print(week.world.told())
    assert answered == ["Running", "Running"]
    assert [served["away_s"] for served in week.served] == [0.0, 0.0]
    holders = week.world.holders()
    assert [len(holders[name]) for name in ("serve-head-0", "serve-gpu-0")] == [1, 1]
    assert not any(holders[name] for name in holders if name.startswith(("head", "gpu-workers")))


def test_two_mondays_with_serving_suspended_while_a_run_trains(week: Week) -> None:
    week.buy("head", "gpu-workers")
    answered: list[str] = []
    week.in_training = lambda: answered.append(week.endpoint())
    week.run("monday-1", SHARED)
    assert week.endpoint() == "Running"
    week.go_to(7)
    week.run("monday-2", SHARED)
    print(week.world.told())
    assert answered == ["nothing there", "away"]
    assert week.endpoint() == "Running"
    first, second = (served["away_s"] / 3600 for served in week.served)
    assert first == 0.0
    assert 11 < second < 11.5
    assert "RayService maze/visgym-llm answers again; it was away for" in " ".join(week.said)


def test_without_either_the_second_monday_is_refused_before_it_trains_with_who_holds_what(week: Week) -> None:
    week.buy(*OWN)
    week.run("monday-1")
    for name in ("serve-head-0", "serve-gpu-0"):
        # Serving where training is, as it was before: the pods of the service hold a head and a GPU.
        for pod in week.world.pods_on(name):
            if pod["metadata"]["namespace"] != "kube-system":
                pod["metadata"]["labels"]["ray.io/cluster"] = "other-llm"
                pod["spec"]["nodeName"] = "head-0" if "head" in pod["metadata"]["name"] else "gpu-workers-1"
    week.go_to(7)
    with pytest.raises(ClusterNotReady, match=r"pod skyrl-visgym-gpu-3 .* has no place: .*maze/visgym-llm.* holds"):
        week.run("monday-2")
    assert week.trainings == 1


def _bad_image(week: Week) -> None:
    week.world.faults.lost_images.add(week.images["train"].uri)


def _refuses(week: Week) -> None:
    week.world.faults.webhook = "no label cost-centre"


def _other_identity(week: Week) -> None:
    week.world.faults.forbidden = True


@pytest.mark.parametrize(
    ("breaks", "error", "words"),
    [
        (_bad_image, ClusterNotReady, "ImagePullBackOff: Back-off pulling image"),
        (_refuses, KubernetesRefused, "denied the request: no label cost-centre"),
        (_other_identity, StageError, "Forbidden|forbidden|may not"),
    ],
)
def test_what_breaks_before_a_training_is_told_in_its_own_words(
    week: Week, breaks: Callable[[Week], None], error: type[Exception], words: str
) -> None:
    week.buy(*OWN)
    breaks(week)
    with pytest.raises(error, match=words):
        week.run("monday-1", {"platform.hosting.ready_timeout_s": 1800})
    assert week.trainings == 0


@pytest.mark.parametrize("fault", ["lose", "reclaim"])
@pytest.mark.parametrize("changes", [{}, SHARED])
def test_a_machine_that_goes_in_a_training_ends_it_and_the_endpoint_is_back(
    week: Week, fault: str, changes: dict[str, Any]
) -> None:
    week.buy(*OWN)
    week.run("monday-1", changes)
    week.go_to(7)
    week.in_training = lambda: getattr(week.world, fault)("gpu-workers-1")
    with pytest.raises(TrainingJobFailed):
        week.run("monday-2", changes)
    assert not [each for each in week.world.every("rayclusters") if each["metadata"]["name"] == "skyrl-visgym"]
    week.world.clock.sleep(1800)
    assert week.endpoint() == "Running"


def test_an_application_that_changes_while_the_operator_writes_its_status_is_changed_all_the_same(week: Week) -> None:
    week.buy(*OWN)
    week.run("monday-1")
    week.world.faults.conflicts = 3
    week.run("monday-2", {"platform.serve.server.max_loras": 2})
    assert week.world.faults.conflicts == 0
    assert week.trainings == 2


def test_changes_that_meet_others_are_made_again_and_the_run_succeeds(week: Week) -> None:
    week.buy("head", "gpu-workers")
    week.run("monday-1", SHARED)
    week.go_to(7)
    week.world.faults.conflicts = 4
    week.run("monday-2", SHARED)
    assert week.world.faults.conflicts == 0
    assert week.endpoint() == "Running"


def test_another_serving_image_is_refused_before_the_training_or_replaced_before_it(week: Week) -> None:
    week.buy(*OWN)
    week.run("monday-1")
    week.images["serve"] = image("c")
    with pytest.raises(RolloutFailed, match=r"runs other pods than this run wants .*; set hosting.replace_serving"):
        week.run("monday-2")
    assert week.trainings == 1
    week.in_training = lambda: runs.append(week.endpoint())
    runs: list[str] = []
    week.run("monday-2", {"platform.hosting.replace_serving": True})
    assert (week.trainings, runs) == (2, ["Running"])


def test_a_kuberay_that_cannot_suspend_a_service_is_found_before_the_endpoint_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for week in weeks(tmp_path, monkeypatch, operator="1.6"):
        week.buy("head", "gpu-workers")
        week.run("monday-1", SHARED)
        with pytest.raises(ClusterNotReady, match=r"has no spec.suspend \(it came with 1.7\)"):
            week.run("monday-2", SHARED)
        assert (week.trainings, week.endpoint()) == (1, "Running")


def test_a_service_that_is_made_anew_after_a_training_says_how_long_it_was_away(week: Week) -> None:
    week.buy("head", "gpu-workers")
    week.run("monday-1", SHARED)
    week.go_to(7)
    week.images["serve"] = image("c")
    week.run("monday-2", SHARED | {"platform.hosting.replace_serving": True})
    assert 11 < week.served[-1]["away_s"] / 3600 < 11.5
    assert week.endpoint() == "Running"
    assert not [mark for mark in week.service()["metadata"]["annotations"] if "suspended" in mark]


def test_a_service_that_is_back_speaks_of_no_training_so_that_whoever_suspends_it_by_hand_is_left_alone(
    week: Week,
) -> None:
    week.buy("head", "gpu-workers")
    week.run("monday-1", SHARED)
    week.go_to(7)
    week.run("monday-2", SHARED)
    service = week.service()
    assert not [mark for mark in service["metadata"]["annotations"] if "suspended" in mark]
    service["spec"]["suspend"] = True
    assert week.left("monday-2", SHARED) == ["it makes room for nobody of ours"]


def test_another_run_does_not_take_an_endpoint_that_is_away_for_a_training(week: Week) -> None:
    week.buy("head", "gpu-workers")
    week.run("monday-1", SHARED)
    week.go_to(7)
    heard: list[str] = []

    def meanwhile() -> None:
        with pytest.raises(ClusterNotReady, match=r"belongs to .*monday-2, not to by-hand") as refused:
            week.make_room("by-hand", SHARED)
        heard.append(str(refused.value))

    week.in_training = meanwhile
    week.run("monday-2", SHARED)
    assert (len(heard), week.endpoint()) == (1, "Running")


def test_an_endpoint_that_a_dead_run_took_away_is_refused_until_somebody_cleans_up_after_it_or_takes_over(
    week: Week,
) -> None:
    week.buy("head", "gpu-workers")
    week.run("monday-1", SHARED)
    week.make_room("dead", SHARED)
    with pytest.raises(ClusterNotReady, match=r"is suspended since 2026-.* for run dead; wait for its end, clean up"):
        week.run("monday-2", SHARED)
    assert week.trainings == 1
    week.run("monday-2", SHARED | {"platform.hosting.take_over": True})
    assert (week.trainings, week.endpoint()) == (2, "Running")
