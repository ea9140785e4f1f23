"""The trainer tells some of a step's episodes with SkyRL's own advantages, and goes on where it cannot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.train.config import SkyRLTrainConfig

from rl.events import EventLog, Fault, Rollouts, parse_line
from rl.grpo.experiment import MazeTrainer
from rl.maze.score import Outcome

SOLVED = [True, False, False, False, True, True, True, True]
"""Two mazes, played four times each."""


class Told(MazeTrainer):
    """The trainer with what the advantages need, and no workers."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.cfg = SkyRLTrainConfig.from_cli_overrides({"trainer.algorithm.advantage_estimator": "grpo"})
        self._log, self.global_step, self.all_metrics = EventLog(), 3, {}
        self.generator = SimpleNamespace(outcomes=outcomes)  # type: ignore[assignment]


def outcomes() -> list[Outcome]:
    return [Outcome(seed=n // 4, solved=won, actions="S", unparsable_replies=0) for n, won in enumerate(SOLVED)]


def batch(num_padded: int = 0) -> TrainingInputBatch:
    """Three tokens an episode, of which the second is the environment's; the seventh episode was dropped."""
    rows = [*range(8), *[0] * num_padded]
    rewards = torch.zeros(len(rows), 3)
    rewards[:, 2] = torch.tensor([float(SOLVED[row]) for row in rows])
    mask = torch.tensor([[1, 0, 1]] * len(rows))
    mask[6] = 0
    found: Any = TrainingInputBatch(
        {"rewards": rewards, "response_mask": torch.ones(len(rows), 3), "loss_mask": mask, "values": None}
    )
    uids = [str(row // 4) if number < 8 else f"pad-{number}" for number, row in enumerate(rows)]
    found.metadata = {"uids": uids, "avg_response_length": 3.0, "pad_size": num_padded}
    return found


def events(capsys: pytest.CaptureFixture[str]) -> list[Rollouts | Fault]:
    told = [parse_line(line) for line in capsys.readouterr().out.split("\n")]
    return [event for event in told if isinstance(event, Rollouts | Fault)]


@pytest.mark.parametrize("num_padded", [0, 2])
def test_episodes_are_told_with_the_advantages_that_they_are_trained_with(
    capsys: pytest.CaptureFixture[str], num_padded: int
) -> None:
    data = Told(outcomes()).compute_advantages_and_returns(batch(num_padded))
    (told,) = events(capsys)
    assert isinstance(told, Rollouts)
    assert (told.step, len(told.rollouts)) == (3, 8)
    assert [one.outcome for one in told.rollouts] == outcomes()
    assert [one.reward for one in told.rollouts] == [float(won) for won in SOLVED]
    expected = [float(data["advantages"][row, 0]) for row in range(8)]
    assert [one.advantage for one in told.rollouts] == [*expected[:6], None, expected[7]]
    assert told.rollouts[0].advantage is not None
    assert told.rollouts[0].advantage > 0.5
    assert told.rollouts[4].advantage == 0.0, "a maze that is always solved teaches nothing"


def test_what_cannot_be_told_is_a_fault_that_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    data = Told(outcomes()[:5]).compute_advantages_and_returns(batch())
    assert data["advantages"].shape == (8, 3)
    (fault,) = events(capsys)
    assert isinstance(fault, Fault)
    assert (fault.boundary, fault.fatal) == ("rollouts", False)
    assert fault.message.startswith("step 3: not told: ValueError")
