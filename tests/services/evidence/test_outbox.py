"""MLflow's and Prefect's servers go away in the middle of a run and come back: real servers, killed by pid."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from mlflow import MlflowClient
from prefect import flow, get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.objects import Artifact
from prefect.client.schemas.sorting import ArtifactSort
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from tasks.clients.mlflow_runs import MlflowRuns
from tasks.evidence.mlflow_log import Address, KeptLog, MlflowTaker
from tasks.evidence.outbox import Entry, ObserverAway, Outbox
from tasks.evidence.prefect_page import PageTaker
from tasks.evidence.tracking import tracked_run
from tasks.jobs.news import training_log
from tasks.local.process import Processes
from tasks.local.services import Layout, LocalServices
from tasks.run import RunContext
from tasks.settings import TrackingSettings
from tests.services.loopback import free_port, wait_until

pytestmark = pytest.mark.slow_s(60)

ROOT = Path(__file__).resolve().parents[3]
NUM_STEPS, STEP_S, TABLE_EVERY = 60, 0.05, 5
"""Of the work that is observed."""
OTHER, OTHER_STEPS = "ended-meanwhile", range(10)


class Observers:
    """The two servers, each on its port and its data for as long as the test."""

    def __init__(self, folder: Path) -> None:
        self._processes = Processes(folder / "services")
        local = LocalServices(Layout(ROOT, folder), print)
        self.mlflow_port, self.prefect_port = free_port(), free_port()
        self._services = [local._mlflow(self.mlflow_port), local._prefect(self.prefect_port)]

    def start(self) -> None:
        with ThreadPoolExecutor() as both:
            list(both.map(self._processes.start, self._services))

    def kill(self) -> None:
        """As a machine's loss would: nothing is told to end."""
        for service in self._services:
            running = self._processes.running(service.name)
            assert running is not None
            family = [psutil.Process(running.pid), *psutil.Process(running.pid).children(recursive=True)]
            for process in family:
                process.send_signal(signal.SIGKILL)
            psutil.wait_procs(family, timeout=20)

    def stop(self) -> None:
        for service in self._services:
            self._processes.stop(service.name)


class Story:
    """A run that works on while both are killed and come back, and another one that ends meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.observers, self._folder = Observers(folder), folder
        self.uri = f"http://127.0.0.1:{self.observers.mlflow_port}"
        self.tracking = TrackingSettings(
            tracking_uri=self.uri,
            experiment="e",
            outbox_dir=str(folder / "outbox"),
            logs_dir=str(folder / "logs"),
            flush_timeout_s=60,
        )
        self.steps_took_s: list[float] = []
        self.took_without_observers_s = 0.0
        self.left_on_disk = 0
        self.warned: list[str] = []

    def run(self) -> None:
        self.observers.start()
        runs = MlflowRuns(self.uri, "e")
        self.other_id = runs.open(OTHER, "pipeline", {}).run_id

        @flow(name="observed", flow_run_name="observed-1")
        def observed() -> None:
            with tracked_run(self.tracking, "observed-1", {"max_steps": NUM_STEPS}) as context:
                self._work(context, runs)

        with temporary_settings(
            {
                PREFECT_API_URL: f"http://127.0.0.1:{self.observers.prefect_port}/api",
                PREFECT_HOME: self._folder / "client",
            }
        ):
            observed()
            self._tell_as_other(runs, ends=True)
            with get_client(sync_client=True) as client:
                (self.flow_run,) = client.read_flow_runs()
                (self.bar,) = self._artifacts(client, "progress")
                self._lose_answers(str(self.flow_run.id))
                self.tables, self.lost, self.bars = (
                    self._artifacts(client, key) for key in ("numbers", "lost", "progress")
                )

    def _artifacts(self, client: SyncPrefectClient, key: str) -> list[Artifact]:
        """In the order in which they were made."""
        wanted = ArtifactFilter(key=ArtifactFilterKey(any_=[key]))
        return client.read_artifacts(artifact_filter=wanted, sort=ArtifactSort.CREATED_DESC)[::-1]

    def _work(self, context: RunContext, runs: MlflowRuns) -> None:
        third = NUM_STEPS // 3
        self._do_steps(context, 1, third)
        wait_until(lambda: "loss" in MlflowClient(self.uri).get_run(context.run.run_id).data.metrics, 20)
        self.observers.kill()
        began_s = time.monotonic()
        self._do_steps(context, third + 1, 2 * third)
        self.took_without_observers_s = time.monotonic() - began_s
        self._tell_as_other(runs, ends=False)
        with ThreadPoolExecutor() as aside:
            back = aside.submit(self.observers.start)
            self._do_steps(context, 2 * third + 1, NUM_STEPS)
            back.result()

    def _do_steps(self, context: RunContext, first: int, last: int) -> None:
        for step in range(first, last + 1):
            began_s = time.monotonic()
            training_log(context.run, 1).metrics(step, {"loss": float(-step)})
            context.run.metrics(step, {"loss": float(-step)})
            context.page.progress(step, NUM_STEPS, "of the work")
            if step % TABLE_EVERY == 0:
                context.page.table("numbers", [{"step": step}], "the step")
            self.steps_took_s.append(time.monotonic() - began_s)
            time.sleep(STEP_S)

    def _lose_answers(self, flow_run_id: str) -> None:
        """What is told arrives, and its answer does not: the next process tells it again."""
        create = SyncPrefectClient.create_artifact

        def arrives(client: SyncPrefectClient, artifact: ArtifactCreate) -> None:
            create(client, artifact)
            raise httpx.ReadError("connection reset by peer")

        for step, verb in ((1, "make"), (2, "make"), (3, "move")):
            key = "progress" if verb == "move" else "lost"
            made = {"key": key, "type": "table", "data": f"[{step}]", "flow_run_id": flow_run_id}
            entry = Entry(step, verb, {"artifact": made})
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(SyncPrefectClient, "create_artifact", arrives)
                if verb == "make":
                    with pytest.raises(ObserverAway, match="connection reset by peer"):
                        PageTaker().take(entry)
            PageTaker().take(entry)

    def _tell_as_other(self, runs: MlflowRuns, ends: bool) -> None:
        """What another process does that has the same folder for what could not be told."""
        taker = MlflowTaker(runs)
        outbox = Outbox(self._folder / "other-outbox", self.uri, taker.take, self.warned.append)
        run = KeptLog(outbox, taker, Address(run_id=self.other_id), "", OTHER)
        if ends:
            run.end("FINISHED")
            self.left_after = outbox.close(timeout_s=60)
        else:
            for step in OTHER_STEPS:
                run.metrics(step, {"loss": float(-step)})
            self.left_on_disk = outbox.close(timeout_s=0.5)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    found = Story(tmp_path_factory.mktemp("observed"))
    try:
        found.run()
        yield found
    finally:
        found.observers.stop()


def told(client: MlflowClient, run_id: str) -> list[tuple[int, float]]:
    """In the order in which they were told."""
    history = client.get_metric_history(run_id, "loss")
    return [(point.step, point.value) for point in sorted(history, key=lambda point: (point.timestamp, point.step))]


WORK = [(step, float(-step)) for step in range(1, NUM_STEPS + 1)]


def test_the_work_neither_stops_nor_waits_while_its_observers_are_away(story: Story) -> None:
    assert len(story.steps_took_s) == NUM_STEPS
    assert max(story.steps_took_s) < 2, "a step told both observers"
    assert story.took_without_observers_s < 10, "a third of the work, a second long"


def test_mlflow_has_everything_once_and_in_order_and_the_end_of_the_run(
    story: Story, record_property: Callable[[str, object], None]
) -> None:
    client = MlflowClient(story.uri)
    experiment = client.get_experiment_by_name("e")
    assert experiment is not None
    runs = {run.info.run_name: run.info for run in client.search_runs([experiment.experiment_id])}
    assert {name: info.status for name, info in runs.items()} == {
        "observed-1": "FINISHED",
        "observed-1-training-1": "FINISHED",
        OTHER: "FINISHED",
    }
    kept = told(client, runs["observed-1"].run_id)
    record_property("lost", len(set(WORK) - set(kept)))
    record_property("duplicates", len(kept) - len(set(kept)))
    assert kept == WORK
    assert told(client, runs["observed-1-training-1"].run_id) == WORK


def test_the_page_in_prefect_has_every_table_once_and_in_order_and_one_bar(story: Story) -> None:
    steps = range(TABLE_EVERY, NUM_STEPS + 1, TABLE_EVERY)
    assert [made.data for made in story.tables] == [f'[{{"step": {step}}}]' for step in steps]
    told = f"observed-1: step {NUM_STEPS} of {NUM_STEPS}, of the work"
    assert (story.bar.data, story.bar.description) == (100.0, told)
    assert {made.flow_run_id for made in story.tables} == {story.flow_run.id}
    assert story.flow_run.state_name == "Completed"


def test_what_arrived_in_prefect_without_an_answer_is_there_once(story: Story) -> None:
    assert [made.data for made in story.lost] == ["[1]", "[2]"]
    assert [bar.data for bar in story.bars] == ["[3]"], "the next process moves the bar that is there"


def test_what_a_run_left_on_disk_is_told_by_the_next_one_before_its_own(story: Story) -> None:
    assert (story.left_on_disk, story.left_after) == (len(OTHER_STEPS), 0)
    assert told(MlflowClient(story.uri), story.other_id) == [(step, float(-step)) for step in OTHER_STEPS]
    assert MlflowClient(story.uri).get_run(story.other_id).info.status == "FINISHED"
    assert any("could not be told 10 things; they are kept in" in text for text in story.warned)
