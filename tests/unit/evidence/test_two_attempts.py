"""Two attempts at training, told to a real MLflow (its store in SQLite): the first is killed after step 3, beyond its
checkpoint of step 2, and the second goes on from there. What each tells is what the job's own code tells
(rl/grpo/start.py, a real events.jsonl); no more is made up than the numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from flows.deployments import load_settings
from rl.events import Completed, Evaluated, Event, EventLog, Metrics, Saved
from rl.grpo.config_table import RunDirs
from rl.grpo.settings import TrainJob
from rl.grpo.start import begin_attempt
from rl.maze.run_mazes import prepare_mazes
from tasks.clients.mlflow_runs import MlflowRuns
from tasks.evidence.mlflow_log import Address, KeptLog, MlflowTaker
from tasks.evidence.outbox import Outbox
from tasks.jobs.story import JobStory
from tasks.run import RunContext
from tasks.training.news import TrainingNews
from tests.recording import RecordingPage
from tests.unit.grpo.folders import write_checkpoint
from tests.unit.samples import report

pytestmark = pytest.mark.slow_s(20)

LOSS, TOOK = "policy/final_loss", "timing/step"


def step(number: int, loss: float) -> Metrics:
    return Metrics(step=number, values={LOSS: loss, TOOK: 36.0})


def results(number: int, num_solved: int) -> list[Event]:
    kept: list[Event] = [
        Saved(kind=kind, step=number, path=f"/{number}", sha256={}) for kind in ("checkpoint", "export")
    ]
    return [*kept, Evaluated(report=report(number, num_solved))]


FIRST: list[Event] = [
    Evaluated(report=report(0, 10)),
    step(1, 9.0),
    step(2, 8.0),
    *results(2, 20),
    step(3, 57.0),
    Evaluated(report=report(3, 45)),
]
SECOND: list[Event] = [step(3, 20.0), step(4, 7.0), *results(4, 40), Completed()]


class World:
    """The job's folder, MLflow, and whoever follows."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.uri = folder, f"sqlite:///{folder}/mlflow.db"
        self.client = MlflowClient(self.uri)
        self.client.create_experiment("e", (folder / "artifacts").as_uri())
        self.runs = MlflowRuns(self.uri, "e")
        self.parent_id = self.runs.open("r", "pipeline", {}).run_id
        train = load_settings("retrain/local", {"platform.train.shared_dir": str(folder / "shared")}).train
        self.order = TrainJob(run_name="r", train=train, train_mazes_sha256=prepare_mazes(train.data).train_sha256)
        self._dirs = RunDirs(train.shared_dir, "r")
        self.warned: list[str] = []

    def train(self, events: list[Event]) -> list[str]:
        """What an attempt prints that begins where the folder's checkpoints let it."""
        log = EventLog(self._dirs.events)
        with redirect_stdout(StringIO()) as printed:
            begin_attempt(self.order, self._dirs, log, log.earlier())
            for event in events:
                log.emit(event)
                if isinstance(event, Saved) and event.kind == "checkpoint":
                    write_checkpoint(self._dirs.checkpoints, event.step, self.order.train.num_policy_gpus)
        return [line for line in printed.getvalue().split("\n") if line]

    def follow(self, *logs: list[str], verdict: str) -> None:
        """As a flow does that hears each job's log from its start; one without a verdict dies where the last ends."""
        outbox = Outbox(self._folder / "outbox", "o", MlflowTaker(self.runs).take, self.warned.append)
        run = KeptLog(outbox, MlflowTaker(self.runs), Address(run_id=self.parent_id), "", "r")
        run.begin()
        for printed in logs:
            news, story = TrainingNews(RunContext("r", run, RecordingPage([])), self.order), JobStory()
            for line in printed:
                story.hear(line, news)
            if verdict == "FINISHED" and printed is logs[-1]:
                news.finished()
        if verdict:
            run.end(verdict)
        assert outbox.close(timeout_s=60) == 0

    def attempt(self, number: int) -> Any:
        found = self.runs.find("r", "training", {"maze.attempt": str(number)}, self.parent_id)
        return self.client.get_run(found)

    def curve(self, run_id: str, name: str) -> list[tuple[int, float]]:
        """Every value that stands there, by step."""
        return sorted((point.step, point.value) for point in self.client.get_metric_history(run_id, name))


@pytest.fixture(
    scope="module",
    params=["", "FAILED", "not followed", "follows both"],
    ids=["killed with it", "saw it fail", "never followed", "submitted the second itself"],
)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    """After both attempts; the parameter is what became of the flow that followed the first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROJECT_DIR", str(Path.cwd()))
        for name in ("RAY_JOBS_ADDRESS", "MLFLOW_TRACKING_URI", "SERVE_DASHBOARD", "SERVE_URL"):
            patch.setenv(name, "http://127.0.0.1:1")
        patch.setenv("SERVE_LISTEN", "127.0.0.1:4")
        found = World(tmp_path_factory.mktemp("world"))
    first = found.train(FIRST)
    if request.param in ("", "FAILED"):
        found.follow(first, verdict=request.param)
    second = found.train(SECOND)
    if request.param == "follows both":
        found.follow(first, second, verdict="FINISHED")
    # A flow that dies after the job has ended follows it anew.
    for _ in range(2):
        found.follow(second, verdict="FINISHED")
    return found


def test_each_attempt_has_a_run_that_ended_as_it_did_with_every_number_once(
    world: World, record_property: Callable[[str, object], None]
) -> None:
    first, second = world.attempt(1), world.attempt(2)
    assert (first.info.status, second.info.status) == ("FAILED", "FINISHED")
    assert world.client.get_run(world.parent_id).info.status == "FINISHED"
    assert world.curve(first.info.run_id, LOSS) == [(1, 9.0), (2, 8.0), (3, 57.0)]
    assert world.curve(second.info.run_id, LOSS) == [(1, 9.0), (2, 8.0), (3, 20.0), (4, 7.0)]
    steps = [at for at, _ in world.curve(second.info.run_id, LOSS)]
    record_property("lost", len({1, 2, 3, 4} - set(steps)))
    record_property("duplicates", len(steps) - len(set(steps)))
    assert second.data.tags["maze.resumed_from_step"] == "2"
    children = [
        run for run in world.client.search_runs([first.info.experiment_id]) if run.info.run_id != world.parent_id
    ]
    assert len(children) == 2
    assert not world.warned


def test_each_attempt_keeps_its_evaluations_and_none_of_the_other_s_beyond_the_checkpoint(world: World) -> None:
    def kept(number: int) -> set[str]:
        items = world.client.list_artifacts(world.attempt(number).info.run_id, "evaluations")
        return {item.path.rpartition("_")[2] for item in items}

    assert kept(1) == {"000000.json", "000002.json", "000003.json"}
    assert kept(2) == {"000000.json", "000002.json", "000004.json"}
    solved = {number: world.curve(world.attempt(number).info.run_id, "eval/solved") for number in (1, 2)}
    assert solved == {1: [(0, 10.0), (2, 20.0), (3, 45.0)], 2: [(0, 10.0), (2, 20.0), (4, 40.0)]}


def test_the_run_s_own_page_has_the_curve_that_led_to_the_result_and_no_value_of_the_step_broken_off(
    world: World,
) -> None:
    assert world.curve(world.parent_id, "train/loss") == [(1, 9.0), (2, 8.0), (3, 20.0), (4, 7.0)]
    assert [at for at, _ in world.curve(world.parent_id, "eval/solve_rate")] == [0, 2, 4]
    hours = world.curve(world.parent_id, "cost/training_hours")
    assert hours == [(at, pytest.approx(at / 100)) for at in (1, 2, 3, 4)]
    tables = world.client.list_artifacts(world.parent_id, "episodes")
    assert [item.path.rpartition("_")[2] for item in tables] == ["000000.json", "000002.json", "000004.json"]
    outputs = world.client.get_run(world.parent_id).outputs
    assert outputs is not None
    assert sorted(output.step for output in outputs.model_outputs) == [2, 4]
