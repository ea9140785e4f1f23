"""What a real training job told, compared with what MLflow holds: nothing missing, nothing twice, no names in one."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from urllib.parse import unquote

import pytest
from mlflow import MlflowClient

from rl.events import Evaluated, Metrics, Saved
from rl.maze.run_mazes import prepare_mazes
from tasks.clients.mlflow_inputs import find_model
from tasks.clients.mlflow_runs import MlflowRuns, metric_key
from tasks.evidence.mlflow_log import Address, KeptLog, MlflowTaker
from tasks.evidence.outbox import Outbox
from tasks.jobs.story import JobStory
from tasks.run import RunContext
from tasks.training.curves import STEP_CURVES, evaluation_curves
from tasks.training.data import datasets_of
from tasks.training.news import TrainingNews
from tests.recorded_run import event_of, recorded_lines, recorded_order
from tests.recording import RecordingPage

pytestmark = pytest.mark.slow_s(20)


class Told:
    """The recorded job, told to an MLflow of its own - twice, as a flow that follows it anew tells it."""

    def __init__(self, folder: Path) -> None:
        self.uri, self.folder = f"sqlite:///{folder}/mlflow.db", folder
        self.client = MlflowClient(self.uri)
        self.client.create_experiment("e", (folder / "artifacts").as_uri())
        runs = MlflowRuns(self.uri, "e")
        self.parent_id = runs.open("local-recorded", "pipeline", {}).run_id
        self.warned: list[str] = []
        for _ in range(2):
            self._tell(MlflowTaker(runs))
        self.child_id = runs.find("local-recorded", "training", {"maze.attempt": "1"}, self.parent_id)

    def _tell(self, taker: MlflowTaker) -> None:
        outbox = Outbox(self.folder / "outbox", "o", taker.take, self.warned.append)
        run, order = KeptLog(outbox, taker, Address(run_id=self.parent_id), "", "local-recorded"), recorded_order()
        news, story = TrainingNews(RunContext("local-recorded", run, RecordingPage([])), order, len), JobStory()
        run.inputs(datasets_of(prepare_mazes(order.train.data)))
        for line in recorded_lines():
            story.hear(line, news)
        news.finished()
        assert outbox.close(timeout_s=120) == 0

    def history(self, run_id: str) -> dict[tuple[str, int], list[float]]:
        """Name and step -> every value that stands there."""
        found: dict[tuple[str, int], list[float]] = defaultdict(list)
        for key in self.client.get_run(run_id).data.metrics:
            for point in self.client.get_metric_history(run_id, key):
                found[unquote(key.replace(":", "%")), point.step].append(point.value)
        return found


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return Told(tmp_path_factory.mktemp("told"))


EVENTS = [event_of(line) for line in recorded_lines()]
NUMBERS: dict[tuple[str, int], float] = {
    (name, event.step): value for event in EVENTS if isinstance(event, Metrics) for name, value in event.values.items()
}
REPORTS = {event.report.step: event.report for event in EVENTS if isinstance(event, Evaluated)}
EXPORTS = {event.step: event for event in EVENTS if isinstance(event, Saved) and event.kind == "export"}


def test_every_number_of_the_job_stands_once_in_the_attempt_s_run(told: Told) -> None:
    of_reports = {(name, step): value for step, report in REPORTS.items() for name, value in report.metrics().items()}
    assert told.history(told.child_id) == {key: [value] for key, value in {**NUMBERS, **of_reports}.items()}
    assert not told.warned


def test_the_run_s_own_page_has_every_curve_over_the_true_steps_once(told: Told) -> None:
    found = told.history(told.parent_id)
    assert {key for key, values in found.items() if len(values) != 1} == set()
    for (name, step), value in NUMBERS.items():
        if name in STEP_CURVES:
            assert found.pop((STEP_CURVES[name], step)) == [value]
    for step, report in REPORTS.items():
        for name, value in evaluation_curves(report).items():
            assert found.pop((name, step)) == [pytest.approx(value)]
    hours = {step: values[0] for (name, step), values in found.items() if name == "cost/training_hours"}
    assert list(hours) == list(range(1, 17))
    assert sorted(hours.values()) == list(hours.values())
    assert {name for name, _ in found} == {
        "cost/training_hours",
        *(f"adapter/{name}" for name in ("solved", "solve_rate", "mean_turns", "unparsable_replies")),
    }


def test_no_two_names_become_one() -> None:
    names = {name for name, _ in NUMBERS} | set(STEP_CURVES.values()) | {"pass@1", "pass:401", "a b", "a:20b"}
    keys = {metric_key(name): name for name in names}
    assert len(keys) == len(names)
    assert all(unquote(key.replace(":", "%")) == name for key, name in keys.items())


def test_every_exported_step_is_a_model_with_its_evaluation(told: Told) -> None:
    run = told.client.get_run(told.parent_id)
    assert run.outputs is not None
    outputs = {output.step: output.model_id for output in run.outputs.model_outputs}
    assert len(run.outputs.model_outputs) == len(EXPORTS)
    assert outputs.keys() == EXPORTS.keys()
    for step, event in EXPORTS.items():
        model = find_model(told.client, run.info.experiment_id, f"local-recorded-step-{step}")
        assert model is not None
        assert model.model_id == outputs[step]
        assert (str(model.status), model.params["folder"]) == ("READY", event.path)
        figures = {metric.key: (metric.value, metric.dataset_name) for metric in model.metrics or []}
        assert figures["adapter/solved"] == (REPORTS[step].num_solved, "maze_2d-7x9-selection")


def test_the_sets_of_mazes_are_the_run_s_inputs(told: Told) -> None:
    kept = told.client.get_run(told.parent_id).inputs
    assert kept is not None
    inputs = kept.dataset_inputs
    found = {one.tags[0].value: (one.dataset.name, one.dataset.digest) for one in inputs}
    assert len(inputs) == 2
    assert found["selection"] == ("maze_2d-7x9-selection", REPORTS[0].rules.eval_set_sha256[:36])
    assert found["training"][0] == "maze_2d-7x9-training"


def test_every_evaluation_is_a_file_and_a_table_with_one_row_a_maze(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What reads a table asks the server that the environment names for the file.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", told.uri)
    files = {item.path for item in told.client.list_artifacts(told.child_id, "evaluations")}
    assert files == {f"evaluations/step_{step:06d}.json" for step in REPORTS}
    experiment_id = told.client.get_run(told.parent_id).info.experiment_id
    for step, report in REPORTS.items():
        table = told.client.load_table(experiment_id, f"episodes/step_{step:06d}.json", [told.parent_id])
        rows = table.to_dict("records")
        assert [row["seed"] for row in rows] == [outcome.seed for outcome in report.outcomes]
        assert [row["ending"] for row in rows].count("solved") == report.num_solved
