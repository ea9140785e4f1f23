"""What comes out of the outbox reaches MLflow as the runs that it is of, also what an earlier attempt left in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient

from tasks.clients.mlflow_runs import MlflowRuns
from tasks.evidence.mlflow_log import Address, KeptLog, MlflowTaker
from tasks.evidence.outbox import Outbox
from tasks.jobs.news import training_log


@pytest.mark.parametrize("ended", ["KILLED", "FAILED"])
def test_a_late_word_of_an_earlier_attempt_s_end_does_not_end_the_attempt_that_goes_on(
    tmp_path: Path, ended: str
) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client, runs = MlflowClient(uri), MlflowRuns(uri, "e")
    parent = runs.open("r", "pipeline", {})
    taker, warned = MlflowTaker(runs), list[str]()

    def state_of(run_id: str) -> str:
        return client.get_run(run_id).info.status

    def attempt() -> tuple[Outbox, KeptLog]:
        outbox = Outbox(tmp_path, "o", taker.take, warned.append)
        return outbox, KeptLog(outbox, taker, Address(run_id=parent.run_id), "", "r")

    # Left on disk by the attempt that ended, and told in one go with what this one says.
    outbox, run = attempt()
    training_log(run, 1).metrics(1, {"loss": 1.0})
    run.end(ended)
    run.begin()
    training_log(run, 1).begin()
    training_log(run, 1).metrics(2, {"loss": 0.5})
    assert outbox.close(timeout_s=30) == 0
    child = runs.find("r", "training", {"maze.attempt": "1"}, parent.run_id)
    assert (state_of(parent.run_id), state_of(child)) == ("RUNNING", "RUNNING")
    outbox, run = attempt()
    run.end("FINISHED")
    assert outbox.close(timeout_s=30) == 0
    assert (state_of(parent.run_id), state_of(child)) == ("FINISHED", "FINISHED")
    assert not warned
