"""A followed job's news, told where a run's news is told: its page, and the MLflow run of each attempt at training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from rl.events import Saved
from rl.maze.score import EvalReport
from tasks.run import RunContext, RunLog
from tasks.settings import dotted
from tasks.watch import Evaluation, Numbers

ORDER = "train_job.json"
"""What a run's checkpoints were trained with, kept in its MLflow run."""


class JobNews:
    """The sinks of one followed job (follow.py)."""

    def __init__(
        self,
        context: RunContext,
        order: BaseModel | None = None,
        keep: Callable[[str], object] = lambda text: None,
    ) -> None:
        """``order`` is what the job was asked; each attempt's run in MLflow keeps it. ``keep`` takes what it prints."""
        self._keep = keep
        self._page, self._run, self._order = context.page, context.run, order
        self._log, self._tell = context.run, context.tell
        self._rows: list[dict[str, Any]] = []

    def attempt(self, number: int, from_step: int) -> None:
        """What comes now belongs to this attempt: another curve than the one that it broke off."""
        self._log, self._rows = training_log(self._run, number), []
        self._log.tags({"maze.resumed_from_step": str(from_step)})
        if self._order is not None:
            self._log.params(dotted(self._order.model_dump(mode="json")))

    def finished(self) -> None:
        """The job has ended well, and all of its news is told."""

    def line(self, text: str) -> None:
        self._keep(text)
        self._page.job_line(text)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._tell(Numbers(step, values))
        self._log.metrics(step, values)

    def progress(self, done: int, total: int, text: str) -> None:
        self._page.progress(done, total, text)

    def evaluation(self, report: EvalReport) -> None:
        self._tell(Evaluation(report.step, report.num_solved, report.num_mazes))
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
        self._log.text(report.model_dump_json(indent=1), f"evaluations/step_{report.step:06d}.json")

    def saved(self, event: Saved) -> None:
        """From its first checkpoint on, a run goes on with the settings that it was trained with, or not at all."""
        if event.kind == "checkpoint" and self._order is not None:
            self._run.text(self._order.model_dump_json(indent=1), ORDER)


def training_log(run: RunLog, attempt: int) -> RunLog:
    """The MLflow run of one attempt at training, a child of the pipeline's."""
    return run.child("training", {"maze.attempt": str(attempt)})
