"""News of the training job for the run's own page in MLflow: the curves of what led to its result, and its adapters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rl.events import Resumed, Rollouts, Saved
from rl.grpo.settings import TrainJob
from rl.maze.score import EvalReport
from tasks.clients.mlflow_inputs import MAX_DIGEST_LENGTH
from tasks.jobs.news import JobNews
from tasks.run import MadeModel, RunContext
from tasks.training.curves import EPISODES, episode_rows, evaluation_curves, hours_spent, step_curves
from tasks.training.data import SELECTION, set_name
from tasks.training.rollouts import TABLE, rollout_rows, spread


class TrainingNews(JobNews):
    """Tells the run itself what its attempts are told, of a step once, when nothing can undo the step any more.

    A step counts when a checkpoint holds it: an attempt that breaks off goes on from there, and what it told of later
    steps is trained again. So the page lags behind by up to one checkpoint; the attempt's own run does not.
    """

    def __init__(
        self,
        context: RunContext,
        order: TrainJob,
        keep: Callable[[str], object] = lambda text: None,
        keep_event: Callable[[str], object] = lambda document: None,
    ) -> None:
        super().__init__(context, order, keep, keep_event)
        engine = order.train.engine
        self._num_gpus = order.train.num_gpus if engine.device == "cuda" else 0
        self._held_step = 0
        self._numbers: dict[int, dict[str, float]] = {}
        self._waiting: dict[int, dict[str, float]] = {}
        self._reports: dict[int, EvalReport] = {}
        self._tables: dict[int, EvalReport] = {}
        self._exports: dict[int, Saved] = {}
        self._samples: dict[int, Rollouts] = {}
        self._order_of_all = order

    def attempt(self, begun: Resumed) -> None:
        super().attempt(begun)
        self._held_step = begun.step
        told_later = (self._numbers, self._waiting, self._reports, self._tables, self._exports, self._samples)
        for told in told_later:
            for step in [step for step in told if step > begun.step]:
                del told[step]

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        super().metrics(step, values)
        self._numbers.setdefault(step, {}).update(values)
        curves = step_curves(values)
        self._later(
            step, curves | (hours_spent(self._numbers, step, self._num_gpus) if "time/step_s" in curves else {})
        )

    def evaluation(self, report: EvalReport) -> None:
        super().evaluation(report)
        self._reports[report.step] = self._tables[report.step] = report
        self._later(report.step, evaluation_curves(report))

    def rollouts(self, sample: Rollouts) -> None:
        self._samples[sample.step] = sample

    def saved(self, event: Saved) -> None:
        super().saved(event)
        if event.kind == "export":
            self._exports[event.step] = event
        else:
            self._held_step = max(self._held_step, event.step)
            self._tell_rollouts()
        self._tell_what_holds()

    def finished(self) -> None:
        """The job ended well: all that it told led to the result."""
        self._held_step = max([self._held_step, *self._waiting, *self._exports])
        self._tell_what_holds()
        self._tell_rollouts()

    def _later(self, step: int, values: Mapping[str, float]) -> None:
        if values:
            self._waiting.setdefault(step, {}).update(values)
            self._tell_what_holds()

    def _tell_what_holds(self) -> None:
        for step in sorted(step for step in self._waiting if step <= self._held_step):
            self._run.metrics(step, self._waiting.pop(step))
        for step in sorted(step for step in self._tables if step <= self._held_step):
            self._run.table(episode_rows(self._tables.pop(step)), f"{EPISODES}/step_{step:06d}.json")
        for step in sorted(self._reports.keys() & self._exports.keys()):
            if step <= self._held_step:
                self._adapter(step)

    def _tell_rollouts(self) -> None:
        """The whole table anew, at each checkpoint: what MLflow has is of steps that hold."""
        steps = spread(step for step in self._samples if step <= self._held_step)
        if steps:
            samples = [self._samples[step] for step in steps]
            self._run.table(rollout_rows(samples, self._order_of_all.train.data), TABLE)

    def _adapter(self, step: int) -> None:
        """Among the run's models, once: with its evaluation, and not before its training holds."""
        self._run.model(made_model(self._order_of_all, self._reports[step], self._exports.pop(step)))


def made_model(order: TrainJob, report: EvalReport, export: Saved) -> MadeModel:
    """What MLflow keeps of an exported adapter."""
    rules = report.rules
    return MadeModel(
        name=f"{order.run_name}-step-{export.step}",
        step=export.step,
        params={
            "base_model": order.train.model_path,
            "lora_rank": str(order.train.lora.rank),
            "folder": export.path,
            **{f"sha256.{name}": digest for name, digest in export.sha256.items()},
        },
        metrics={f"adapter/{name.partition('/')[2]}": value for name, value in report.metrics().items()},
        dataset=(set_name(rules.maze, SELECTION), rules.eval_set_sha256[:MAX_DIGEST_LENGTH]),
    )
