"""What the training job reports of SkyRL's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import vllm
from skyrl.train.config import SkyRLTrainConfig

from rl.events import Event, EventLog, Fault, Metrics, parse_line
from rl.grpo.config_table import RunDirs, skyrl_overrides
from rl.grpo.experiment import EventTracker, eval_conditions, eval_rules, share_without_signal
from rl.maze.run_mazes import prepare_mazes
from rl.maze.score import GREEDY, Conditions, EvalRules, Outcome
from tests.train.conftest import train_job


def logged(capsys: pytest.CaptureFixture[str], *steps: dict[str, Any]) -> list[Event]:
    tracker = EventTracker(EventLog(), total_steps=2)
    for number, data in enumerate(steps, 1):
        tracker.log(data, step=number)
    told = [parse_line(line) for line in capsys.readouterr().out.split("\n")]
    return [event for event in told if isinstance(event, Fault | Metrics)]


def test_a_number_that_is_not_finite_is_named_and_the_others_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert logged(capsys, {"policy/loss": float("nan"), "policy/lr": 0.001}) == [
        Fault(boundary="training", message="step 1: not finite: {'policy/loss': nan}"),
        Metrics(step=1, values={"policy/lr": 0.001}),
    ]


@pytest.mark.parametrize(
    "value",
    [
        1,
        True,
        1.0,
        np.float32(1),
        np.float64(1),
        np.int64(1),
        np.bool_(True),
        np.array(1.0),
        np.array([1.0]),
        torch.tensor(1.0),
        torch.tensor([[1]]),
        torch.tensor(1.0, dtype=torch.bfloat16, requires_grad=True),
    ],
    ids=repr,
)
def test_numbers_of_numpy_and_torch_are_logged(capsys: pytest.CaptureFixture[str], value: Any) -> None:
    assert logged(capsys, {"x": value}) == [Metrics(step=1, values={"x": 1.0})]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", "str"),
        (None, "NoneType"),
        ([1.0], "list"),
        (np.zeros(2), "ndarray"),
        (torch.zeros(0), "Tensor"),
        (torch.zeros(2), "Tensor"),
        (1j, "complex"),
    ],
    ids=repr,
)
def test_what_is_no_number_is_named_once(capsys: pytest.CaptureFixture[str], value: Any, kind: str) -> None:
    assert logged(capsys, {"x": value, "y": 1}, {"x": value, "y": 2}) == [
        Fault(boundary="training", message=f"step 1: no numbers, left out from here on: {{'x': '{kind}'}}"),
        Metrics(step=1, values={"y": 1.0}),
        Metrics(step=2, values={"y": 2.0}),
    ]


def test_an_evaluation_says_by_which_rules_skyrl_played_it(tmp_path: Path) -> None:
    job = train_job(tmp_path, max_reply_tokens=12, temperature=0.8)
    cfg: Any = SkyRLTrainConfig.from_cli_overrides(skyrl_overrides(job, RunDirs(str(tmp_path), "test"), None))
    data = job.train.data
    expected = EvalRules(
        eval_set_sha256=data.eval_sha256,
        maze=data.maze,
        max_turns=data.max_turns,
        parsing=data.parsing,
        max_reply_tokens=12,
        temperature=GREEDY,
    )
    assert eval_rules(cfg, prepare_mazes(data)) == expected
    cfg.generator.eval_sampling_params.temperature = 0.7
    assert eval_rules(cfg, prepare_mazes(data)).temperature == 0.7


def test_a_maze_whose_rollouts_all_end_alike_brings_no_signal() -> None:
    def outcomes(*groups: tuple[int, str]) -> list[Outcome]:
        return [
            Outcome(seed=seed, solved=end == "s", actions="S", unparsable_replies=0)
            for seed, ends in groups
            for end in ends
        ]

    assert share_without_signal(outcomes((1, "ss"), (2, "--"), (3, "s-"), (4, "-s"))) == 0.5
    assert share_without_signal(outcomes((1, "s-"))) == 0.0
    assert share_without_signal(outcomes((7, "---"))) == 1.0


def test_an_evaluation_says_in_what_it_was_played(tmp_path: Path) -> None:
    job = train_job(tmp_path, max_reply_tokens=12, temperature=0.8)
    cfg: Any = SkyRLTrainConfig.from_cli_overrides(skyrl_overrides(job, RunDirs(str(tmp_path), "test"), None))
    found, engine = eval_conditions(cfg, 64), job.train.engine
    assert (found.num_concurrent, found.software) == (64, f"vllm {vllm.__version__}")
    assert (
        found.engine.items()
        >= {
            "model_dtype": engine.dtype,
            "max_num_seqs": engine.max_num_seqs,
            "max_num_batched_tokens": engine.max_num_batched_tokens,
            "enforce_eager": engine.enforce_eager,
        }.items()
    )
    assert found.engine.items() >= engine.init_kwargs.items()
    assert Conditions.model_validate_json(found.model_dump_json()) == found
    assert eval_conditions(cfg, 4096).num_concurrent == 1024
