"""What the training job reports of SkyRL's numbers."""

from __future__ import annotations

import pytest

from rl.events import EventLog, Fault, Metrics, parse_line
from rl.grpo.experiment import EventTracker


def test_a_number_that_is_not_finite_is_named_and_the_others_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    EventTracker(EventLog(), total_steps=2).log({"policy/loss": float("nan"), "policy/lr": 0.001}, step=1)
    events = [parse_line(line) for line in capsys.readouterr().out.splitlines()]
    assert events[:2] == [
        Fault(boundary="training", message="step 1: not finite: {'policy/loss': nan}"),
        Metrics(step=1, values={"policy/lr": 0.001}),
    ]
