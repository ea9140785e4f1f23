"""The retrain flow's order, and its end: whatever stage fails, the run is cleaned up and closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import flows.retrain
import tasks.cleanup.clean_up
from flows.deployments import load_deployment
from tasks.cleanup.parts import Leftover
from tests.recording import recording

STAGES = [
    "prepare_data",
    "draw_judge_set",
    "order_training",
    "recall_training",
    "build_images",
    "make_room_for_training",
    "create_training_cluster",
    "ensure_cluster",
    "check_readiness",
    "run_training",
    "pick_best",
    "publish_adapter",
    "probe_training_side",
    "keep_training",
    "release_training_cluster",
    "create_serving_cluster",
    "ensure_endpoint",
    "evaluate_endpoint",
    "prove_adapter",
    "play_judge_set",
    "judge_adapter",
    "promote_adapter",
    "write_report",
]


class Anything:
    """A record with whatever fields a later stage asks for."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: Anything()


class Stages:
    """Records what was called; the stage that is to fail does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.context, self.events = recording()
        self.fails: dict[str, BaseException] = {}
        self.recalled: list[Anything] = []
        for name in set(STAGES):
            monkeypatch.setattr(flows.retrain, name, self._stage(name, {} if name == "build_images" else None))
        monkeypatch.setattr(flows.retrain, "tracked_run", self._tracked_run)
        monkeypatch.setattr(flows.retrain, "contest_of", lambda *args: Anything())
        monkeypatch.setattr(flows.retrain, "in_one_line", lambda report: "judge 80/128, +17 over base, promoted")
        monkeypatch.setattr(flows.retrain, "require_proof", lambda certificate: None)
        for record in ("FinishedTraining", "ServingSide", "ServedRun"):
            monkeypatch.setattr(flows.retrain, record, lambda **parts: Anything())
        monkeypatch.setattr(
            tasks.cleanup.clean_up, "clean_up", self._stage("clean_up", [Leftover(part="jobs", name="j")])
        )

    def _stage(self, name: str, result: Any = None) -> Any:
        def stage(*args: Any, **kwargs: Any) -> Any:
            self.events.append(name)
            if name in self.fails:
                raise self.fails[name]
            if name == "recall_training":
                return self.recalled[0] if self.recalled else None
            return Anything() if result is None else result

        return stage

    @contextmanager
    def _tracked_run(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            yield self.context
        except BaseException as error:
            self.events.append(f"close after {type(error).__name__}")
            raise
        self.events.append("close")


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    return Stages(monkeypatch)


@pytest.fixture
def parameters(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("PROJECT_DIR", str(Path.cwd()))
    return load_deployment("retrain/hyperpod", {"run_name": "r"})[1]


def test_stages_run_in_their_order_and_clean_up_comes_last(stages: Stages, parameters: dict[str, Any]) -> None:
    flows.retrain.retrain.fn(**parameters)
    assert stages.events == [*STAGES, "clean_up", "close"]


def test_a_training_that_is_finished_and_published_makes_no_cluster_and_lets_go_of_one_that_is_left(
    stages: Stages, parameters: dict[str, Any]
) -> None:
    stages.recalled.append(Anything())
    flows.retrain.retrain.fn(**parameters)
    skipped = STAGES[STAGES.index("make_room_for_training") : STAGES.index("release_training_cluster")]
    assert stages.events == [*(stage for stage in STAGES if stage not in skipped), "clean_up", "close"]


@pytest.mark.parametrize(
    "stage", sorted(set(STAGES) - {"prepare_data", "draw_judge_set", "order_training", "recall_training"})
)
def test_a_failure_in_any_stage_still_cleans_up_and_is_what_is_raised(
    stages: Stages, parameters: dict[str, Any], stage: str
) -> None:
    stages.fails = {stage: ConnectionError("gone")}
    with pytest.raises(ConnectionError, match="gone"):
        flows.retrain.retrain.fn(**parameters)
    assert stages.events == [
        *STAGES[: STAGES.index(stage) + 1],
        "clean_up",
        "close after ConnectionError",
    ]


def test_a_cancelled_run_cleans_up_too(stages: Stages, parameters: dict[str, Any]) -> None:
    stages.fails = {"run_training": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        flows.retrain.retrain.fn(**parameters)
    assert stages.events[-2:] == ["clean_up", "close after KeyboardInterrupt"]


def test_a_clean_up_that_fails_hides_no_earlier_failure_and_ends_a_good_run_as_failed(
    stages: Stages, parameters: dict[str, Any]
) -> None:
    stages.fails = {"clean_up": PermissionError("denied"), "run_training": ConnectionError("gone")}
    with pytest.raises(ConnectionError, match="gone"):
        flows.retrain.retrain.fn(**parameters)
    del stages.fails["run_training"]
    with pytest.raises(PermissionError, match="denied"):
        flows.retrain.retrain.fn(**parameters)
    assert stages.events[-1] == "close after PermissionError"


def test_bad_data_ends_a_run_before_anything_was_made_or_cleaned_up(stages: Stages, parameters: dict[str, Any]) -> None:
    stages.fails = {"prepare_data": ValueError("another evaluation set")}
    with pytest.raises(ValueError, match="another evaluation set"):
        flows.retrain.retrain.fn(**parameters)
    assert stages.events == ["prepare_data", "close after ValueError"]
