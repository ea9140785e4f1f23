"""The look at the table of runs that MLflow's page offers: there once, of names that runs have, left to people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tasks.clients.mlflow_runs import MlflowRuns
from tasks.clients.mlflow_view import BARS, COLUMNS, LINES, VIEW_TAG, all_runs_url, view_document
from tests.unit.evidence.made_runs import MadeRuns


def kept(client: MlflowClient, experiment: str) -> str:
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return found.tags[VIEW_TAG]


@pytest.mark.slow_s(15)
def test_its_columns_are_what_runs_are_told(tmp_path: Path) -> None:
    made = MadeRuns(tmp_path)
    run = made.client.get_run(made.add("a", 0.9, {"profile": "local", "note": "n", "rollouts_per_maze": 8}))
    # The made run tells no settings of a flow but these, and has no machine with a price.
    told = {"tags": run.data.tags, "metrics": run.data.metrics, "params": {**run.data.params, "learning_rate": ""}}
    missing = {name for kind, names in COLUMNS.items() for name in names if name not in told[kind]}
    assert missing == {"cost/usd"}
    # The recorded training is of a version that did not tell it.
    assert {*LINES, *BARS} - run.data.metrics.keys() == {"train/groups_without_signal"}
    assert len(str(run.data.metrics["judge/solve_rate"])) <= 6


def test_it_has_the_form_that_mlflow_s_page_reads() -> None:
    document = json.loads(view_document(1))
    assert {key: type(value) for key, value in document.items()} == {
        "name": str,
        "createdAt": int,
        "updatedAt": int,
        "state": str,
    }
    state = json.loads(document["state"])
    assert state["selectedColumns"][:2] == ["tags.`maze.decision`", "metrics.`judge/solve_rate`"]
    assert state["columnOrder"] == state["selectedColumns"] == list(state["columnWidths"])
    assert state["searchFilter"] == "tags.`maze.role` = 'pipeline'"
    assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} == {state["compareRunSections"][0]["uuid"]}
    assert len(view_document()) < 5000, "the longest tag that MLflow takes"


def test_an_experiment_gets_it_once_and_what_people_make_of_it_stays(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = MlflowClient(uri)
    MlflowRuns(uri, "new")
    older = client.create_experiment("older")
    MlflowRuns(uri, "older")
    assert json.loads(kept(client, "new"))["name"] == json.loads(kept(client, "older"))["name"] == "Retrainings"
    client.set_experiment_tag(older, VIEW_TAG, "mine")
    MlflowRuns(uri, "older")
    assert kept(client, "older") == "mine"


def test_its_address_follows_from_a_run_s() -> None:
    run_url = "http://m:5000/#/experiments/1/runs/p?workflowType=machine_learning"
    assert all_runs_url(run_url) == (
        "http://m:5000/#/experiments/1/runs?workflowType=machine_learning&viewStateShareKey=retrainings"
    )
    assert all_runs_url("") == ""
