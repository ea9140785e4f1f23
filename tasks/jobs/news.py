"""A followed job's news, told where a run's news is told: its page and the training job's MLflow run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl.maze.score import EvalReport
from tasks.run import RunContext


class JobNews:
    """The sinks of one followed job (follow.py)."""

    def __init__(self, context: RunContext) -> None:
        self._page, self._training = context.page, context.training
        self._rows: list[dict[str, Any]] = []

    def line(self, text: str) -> None:
        self._page.say(text)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._training.metrics(step, values)

    def progress(self, done: int, total: int, text: str) -> None:
        self._page.progress(done, total, text)

    def evaluation(self, report: EvalReport) -> None:
        self._rows.append(
            {
                "step": report.step,
                "solved": f"{report.num_solved} of {report.num_mazes}",
                "mean turns": round(report.mean_turns, 2),
                "unparsable replies": report.unparsable_replies,
            }
        )
        self._page.table("evaluations", self._rows, "Evaluations so far")
        self._page.say(f"step {report.step} solves {report.num_solved} of {report.num_mazes} mazes")
        self._training.text(report.model_dump_json(indent=1), f"evaluations/step_{report.step:06d}.json")
