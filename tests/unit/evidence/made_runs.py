"""Whole runs in an MLflow of their own: players of some skill, what training told of them, and the report."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from rl.events import PREFIX, Evaluated, Event, Metrics, Resumed, Saved
from rl.maze.eval_set import EvalSet
from rl.maze.score import EvalReport, make_report
from tasks.clients.mlflow_runs import MlflowRuns
from tasks.evidence.mlflow_log import Address, KeptLog, MlflowTaker
from tasks.evidence.outbox import Outbox
from tasks.evidence.report import write_report
from tasks.evidence.settings import ReportSettings
from tasks.evidence.tracking import stage_seconds
from tasks.jobs.story import JobStory
from tasks.records import (
    BestStep,
    Evaluations,
    ExportRef,
    JudgeSet,
    PublishedAdapter,
    ServedEndpoint,
    ServedRun,
    TrainedRun,
)
from tasks.release.champion import judge_adapter
from tasks.release.settings import GateSettings
from tasks.run import RunContext
from tasks.settings import dotted
from tasks.training.best import choose_best
from tasks.training.news import TrainingNews
from tests.recorded_run import event_of, recorded_lines, recorded_order
from tests.recording import RecordingPage
from tests.unit.evidence.replay_samples import GAME, play
from tests.unit.samples import MAZES, SEEDS, certificate_of

STEPS = (0, 4, 8, 12, 16)
NUMBERS = [event for line in recorded_lines() if isinstance(event := event_of(line), Metrics)]


class MadeRuns:
    """An MLflow in a folder, and runs that are told to it as a flow tells them."""

    def __init__(self, folder: Path, tracking_uri: str = "", experiment: str = "e") -> None:
        self.folder, self.experiment = folder, experiment
        self.uri = tracking_uri or f"sqlite:///{folder}/mlflow.db"
        self.client = MlflowClient(self.uri)
        if not tracking_uri:
            self.client.create_experiment(experiment, (folder / "artifacts").as_uri())
        self.warned: list[str] = []

    def add(self, run_name: str, skill: float, params: Mapping[str, Any] | None = None, judge: str = "") -> str:
        """A run whose player gets better up to ``skill``; returns its id. ``judge`` draws its judge mazes."""
        runs = MlflowRuns(self.uri, self.experiment)
        opened = runs.open(run_name, "pipeline", {})
        order = recorded_order().model_copy(update={"run_name": run_name})
        opened.params({**dotted(order.model_dump(mode="json")), "max_steps": 16, **(params or {})})
        taker = MlflowTaker(runs)
        outbox = Outbox(self.folder / "outbox", "o", taker.take, self.warned.append)
        run = KeptLog(outbox, taker, Address(run_id=opened.run_id), opened.url, run_name)
        context = RunContext(run_name, run, RecordingPage([]))
        reports = {step: evaluation(run_name, step, skill, SEEDS) for step in STEPS}
        news, story = TrainingNews(context, order, len), JobStory()
        for event in told(reports):
            story.hear(PREFIX + event.model_dump_json(), news)
        news.completed()
        news.finished()
        # A child's id is known once it has been told something.
        outbox.close(timeout_s=120)
        self._end(context, run_name, best_of(run_name, reports), skill, judge)
        return opened.run_id

    def _end(self, context: RunContext, run_name: str, best: BestStep, skill: float, judge: str) -> None:
        runs = MlflowRuns(self.uri, self.experiment)
        taker = MlflowTaker(runs)
        outbox = Outbox(self.folder / "outbox", "o", taker.take, self.warned.append)
        run = KeptLog(outbox, taker, Address(run_id=context.run.run_id), context.run.url, run_name)
        context = replace(context, run=run)
        outcome = served(context, best, skill, judge)
        settings = ReportSettings(reports_dir=str(self.folder / "reports"), profile="local")
        write_report.fn(context, settings, best, outcome)
        run.metrics(1, {**stage_seconds(context), "stage/whole_run_s": 900.0})
        run.end("FINISHED")
        assert outbox.close(timeout_s=120) == 0


def evaluation(name: str, step: int, skill: float, seeds: list[int], model_id: str = "") -> EvalReport:
    """The base, alike in all runs, or a step on the way from it to ``skill``."""
    reached = 0.75 + (skill - 0.75) * step / STEPS[-1]
    draw = random.Random(f"{name if step else 'base'} {step} {seeds[0]}")
    return make_report(
        step, GAME, model_id or f"tiny:{name}", seeds, [play(seed, reached, draw).outcome() for seed in seeds]
    )


def told(reports: Mapping[int, EvalReport]) -> list[Event]:
    """What a training with these evaluations tells, its numbers those of a real one."""
    events: list[Event] = [Resumed(attempt=1, step=0, path="")]
    for step in range(17):
        events += [numbers for numbers in NUMBERS if numbers.step == step]
        if step in reports:
            saved = {"step": step, "path": f"/exports/{step}", "sha256": {"adapter_model.safetensors": "0" * 64}}
            events += [Evaluated(report=reports[step])]
            events += [Saved(kind="export", **saved), Saved(kind="checkpoint", **saved)] if step else []
    return events


def best_of(run_name: str, reports: Mapping[int, EvalReport]) -> BestStep:
    """The record of that training."""
    return choose_best(
        TrainedRun(
            run_name=run_name,
            submission_id=f"{run_name}-train-1",
            attempt=1,
            mazes=MAZES,
            model_path="/models/tiny",
            dtype="float32",
            resumed_from_step=0,
            last_step=16,
            evaluations=tuple(reports.values()),
            exports=tuple(ExportRef(step=step, path=f"/exports/{step}", sha256={}) for step in STEPS[1:]),
            checkpoint_steps=(16,),
            numbers={numbers.step: numbers.values for numbers in NUMBERS},
        )
    )


def served(context: RunContext, best: BestStep, skill: float, judge: str) -> ServedRun:
    """What the endpoint played, and what the gate made of it."""
    name, step = context.run_name, best.best.step
    seeds = [5_000_000 + random.Random(judge or name).randrange(10**6) + number for number in range(96)]
    adapter = PublishedAdapter(
        name=f"{name}-step-{step}",
        uri=f"s3://models/adapters/tiny/{name}-step-{step}",
        sha256="a" * 64,
        step=step,
        model_id=f"tiny:{name}-step-{step}",
    )
    mazes = EvalSet(env_id="maze_2d", height=7, width=9, mazes=())
    played = Evaluations(
        judge_set=JudgeSet(name=f"judge-{name}", sha256="j", mazes=mazes, ceiling=90),
        candidate=evaluation(name, step, skill, seeds, adapter.model_id),
        base=evaluation(name, 0, skill, seeds, "tiny"),
        champion=None,
    )
    return ServedRun(
        adapter=adapter,
        endpoint=ServedEndpoint(url="http://llm", base_model_id="tiny", deployed=True),
        certificate=certificate_of(adapter),
        verdict=judge_adapter.fn(context, GateSettings(), played),
        change=None,
        played=played,
        evaluation=best.best.model_copy(update={"model_id": adapter.model_id}),
    )
