"""The run's numbers as gauges of its Ray cluster, beside Ray's own: whoever scrapes the nodes has them, Grafana too.

MLflow remains where numbers are kept. These are for looking on while a job runs, and none of them may end it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from rl.events import Evaluated, Event, Metrics

GAUGES = {
    "maze_solve_rate": "Share of the evaluation mazes solved, at the last evaluation",
    "maze_solved_mazes": "Evaluation mazes solved, at the last evaluation",
    "maze_eval_mazes": "Evaluation mazes played, at the last evaluation",
    "maze_last_step": "Last step that is done, or the evaluation before training (0)",
    "maze_reward_mean": "Mean reward of the step's rollouts",
    "maze_rollouts_per_second": "Rollouts of the step, by the time that they took",
    "maze_step_seconds": "Wall time of the step",
    "maze_step_part_seconds": "Wall time of one part of the step (tag part)",
}
"""Every gauge and what it means, tagged by run_name. Prometheus has them as ray_<name>."""

PARTS = {
    "timing/generate": "rollouts",
    "timing/fwd_logprobs_values_reward": "forward",
    "timing/train_critic_and_policy": "update",
    "timing/sync_weights": "sync",
    "timing/save_checkpoints": "checkpoint",
    "timing/save_hf_model": "export",
}
"""SkyRL's timings within a step -> the tag ``part``."""

TAG_KEYS = dict.fromkeys(GAUGES, ("run_name",)) | {"maze_step_part_seconds": ("run_name", "part")}

_LOG = logging.getLogger(__name__)


def readings(event: Event) -> Iterator[tuple[str, float, dict[str, str]]]:
    """What an event says to the gauges: name, value, tags beside run_name. Pure."""
    match event:
        case Evaluated():
            yield "maze_solve_rate", event.report.solve_rate, {}
            yield "maze_solved_mazes", event.report.num_solved, {}
            yield "maze_eval_mazes", event.report.num_mazes, {}
        case Metrics():
            yield "maze_last_step", event.step, {}
            yield from _of_step(event.values)


def _of_step(values: dict[str, float]) -> Iterator[tuple[str, float, dict[str, str]]]:
    if "reward/avg_raw_reward" in values:
        yield "maze_reward_mean", values["reward/avg_raw_reward"], {}
    if "timing/step" in values:
        yield "maze_step_seconds", values["timing/step"], {}
        for key, part in PARTS.items():
            # A step without a checkpoint has none: the last one's time must not stay.
            yield "maze_step_part_seconds", values.get(key, 0.0), {"part": part}
    rollouts, seconds = values.get("rollouts/trajectories"), values.get("timing/generate")
    if rollouts and seconds:
        yield "maze_rollouts_per_second", rollouts / seconds, {}


class RunGauges:
    """The gauges of one run; made when the first number comes, in a process that Ray knows by then."""

    def __init__(self, run_name: str) -> None:
        self._run_name = run_name
        self._gauges: dict[str, Any] = {}
        self._is_broken = False

    def hear(self, event: Event) -> None:
        """Set what the event says. The first failure is logged and ends the setting, never the run."""
        if self._is_broken:
            return
        try:
            for name, value, tags in readings(event):
                self._gauge(name).set(value, tags={"run_name": self._run_name, **tags})
        except Exception:
            self._is_broken = True
            _LOG.warning("no gauges for the rest of this run; MLflow has its numbers", exc_info=True)

    def _gauge(self, name: str) -> Any:
        if name not in self._gauges:
            from ray.util.metrics import Gauge

            self._gauges[name] = Gauge(name, GAUGES[name], tag_keys=TAG_KEYS[name])
        return self._gauges[name]
