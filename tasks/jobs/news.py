"""A followed job's news, told where a run's news is told: its page, and the MLflow run of each attempt at training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from rl.events import Fault, Resumed, Rollouts, Saved
from rl.maze.score import EvalReport
from tasks.run import RunContext, RunLog
from tasks.settings import dotted
from tasks.watch import Evaluation, Numbers

ORDER = "train_job.json"
"""What a run's checkpoints were trained with, kept in its MLflow run."""


class JobNews:
    """The sinks of one followed job (story.py)."""

    def __init__(
        self,
        context: RunContext,
        order: BaseModel | None = None,
        keep: Callable[[str], object] = lambda text: None,
        keep_event: Callable[[str], object] = lambda document: None,
    ) -> None:
        """``order`` is what the job was asked; each attempt's run in MLflow keeps it. ``keep`` takes what it prints,
        ``keep_event`` what it tells."""
        self._keep, self._keep_event = keep, keep_event
        self._page, self._run, self._order = context.page, context.run, order
        self._log, self._tell = context.run, context.tell
        self._rows: list[dict[str, Any]] = []
        self._begun: Resumed | None = None

    def attempt(self, begun: Resumed) -> None:
        """Another curve than the one that it broke off. An attempt that another one follows has ended, and badly unless
        it said otherwise."""
        if self._begun and self._begun.attempt != begun.attempt:
            self._log.end("FAILED")
        self._begun, self._log, self._rows = begun, training_log(self._run, begun.attempt), []
        if not begun.is_over:
            self._log.begin()
        self._log.tags({"maze.resumed_from_step": str(begun.step)})
        if self._order is not None:
            self._log.params(dotted(self._order.model_dump(mode="json")))

    def inherited(self, numbers: Mapping[int, Mapping[str, float]], evaluations: Mapping[int, EvalReport]) -> None:
        """Kept with the attempt; a line and a table say it to whoever reads along."""
        for step, values in numbers.items():
            self._log.metrics(step, values)
        for report in evaluations.values():
            self._keep_evaluation(report)
        if self._begun and self._begun.attempt > 1 and self._is_news:
            solved = ", ".join(f"{report.num_solved} at step {step}" for step, report in evaluations.items())
            self._page.say(
                f"attempt {self._begun.attempt} goes on from step {self._begun.step}"
                + (f"; mazes solved before: {solved}" if solved else "")
            )
            self._page.table("evaluations", self._rows, "Evaluations so far")

    def completed(self) -> None:
        """What becomes of the run afterwards is not the attempt's doing."""
        if self._begun:
            self._log.end("FINISHED")

    @property
    def _is_news(self) -> bool:
        """Whether what is told happens now: who follows an attempt is told of those before it, too."""
        return self._begun is None or not self._begun.is_over

    def finished(self) -> None:
        """The job has ended well, and all of its news is told."""

    def event(self, document: str) -> None:
        self._keep_event(document)

    def rollouts(self, sample: Rollouts) -> None:
        """Kept by whoever has a place for them; the file of events has them."""

    def wrote(self, name: str, text: str) -> None:
        self._log.text(text, f"job/{name}")

    def line(self, text: str) -> None:
        self._keep(text)
        self._page.job_line(text)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        if self._is_news:
            self._tell(Numbers(step, values))
        self._log.metrics(step, values)

    def fault(self, fault: Fault) -> None:
        text = f"{'ERROR' if fault.fatal else 'WARNING'} {fault.boundary}: {fault.message}"
        self._keep(text)
        if self._is_news:
            self._page.job_line(text)

    def progress(self, done: int, total: int, text: str) -> None:
        if self._is_news:
            self._page.progress(done, total, text)

    def evaluation(self, report: EvalReport) -> None:
        self._keep_evaluation(report)
        if self._is_news:
            self._tell(Evaluation(report.step, report.num_solved, report.num_mazes))
            self._page.table("evaluations", self._rows, "Evaluations so far")
            self._page.say(f"step {report.step} solves {report.num_solved} of {report.num_mazes} mazes")

    def _keep_evaluation(self, report: EvalReport) -> None:
        self._rows.append(
            {
                "step": report.step,
                "solved": f"{report.num_solved} of {report.num_mazes}",
                "mean turns": round(report.mean_turns, 2),
                "unparsable replies": report.unparsable_replies,
            }
        )
        self._log.text(report.model_dump_json(indent=1), f"evaluations/step_{report.step:06d}.json")

    def saved(self, event: Saved) -> None:
        """From its first checkpoint on, a run goes on with the settings that it was trained with, or not at all."""
        if event.kind == "checkpoint" and self._order is not None:
            self._run.text(self._order.model_dump_json(indent=1), ORDER)


def training_log(run: RunLog, attempt: int) -> RunLog:
    """The MLflow run of one attempt at training, a child of the pipeline's."""
    return run.child("training", {"maze.attempt": str(attempt)})
