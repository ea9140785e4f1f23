"""``maze-retrain compare``: tables in the terminal, files on disk, names that are none in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from flows.deployments import load_deployment, settings_type
from tasks.clients.mlflow_evidence import EVALUATION_MAZES, EvidenceOfRuns, RunEvidence
from tasks.clients.mlflow_history import PastRun
from tasks.errors import UnknownRun
from tasks.evidence.settings import CompareSettings
from tests.unit.samples import report


def evidence(name: str, num_solved: int, rate: str) -> RunEvidence:
    run = PastRun(name, "FINISHED", 0, 3_600_000, {"learning_rate": rate, "max_steps": "16"}, {}, "promote")
    return RunEvidence(run, {"eval/solve_rate": {0: 0.5, 4: 0.6}}, {}, {EVALUATION_MAZES: report(4, num_solved)})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """MLflow with two runs; what it was asked for."""
    known, calls = {"a": evidence("a", 30, "0.001"), "b": evidence("b", 41, "0.01")}, list[Any]()

    def named(self: EvidenceOfRuns, names: list[str]) -> list[RunEvidence]:
        calls.append(list(names))
        if unknown := [name for name in names if name not in known]:
            raise UnknownRun(f"MLflow knows no run {', '.join(unknown)}; `maze-retrain runs` lists them")
        return [known[name] for name in names]

    monkeypatch.setattr(EvidenceOfRuns, "named", named)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("PROJECT_DIR", str(tmp_path))
    return calls


def typed(*arguments: str) -> tuple[int, list[str], str]:
    done = CliRunner().invoke(app, ["compare", *arguments], env={"COLUMNS": "100"})
    return done.exit_code, [" ".join(line.split()) for line in done.stdout.splitlines()], done.stderr


def test_two_runs_are_shown_beside_each_other_and_written_down(asked: list[Any], tmp_path: Path) -> None:
    code, lines, _ = typed("a", "b")
    assert (code, asked) == (0, [["a", "b"]])
    assert "learning_rate 0.001 0.01" in lines
    assert not [line for line in lines if "max_steps" in line]
    assert [line for line in lines if line.startswith("evaluation mazes b against a 11 0 30 23")]
    folder = tmp_path / ".local" / "reports" / "compare" / "a--b"
    assert {path.suffix for path in folder.iterdir()} == {".md", ".html", ".csv", ".png"}
    assert lines[-1] == f"written: {folder}/comparison.html, with CSV and curves beside it"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a", "nobody"], "error: MLflow knows no run nobody; `maze-retrain runs` lists them"),
        (["a"], "runs"),
        (["a", "a"], "a run is named twice; name each once"),
        (["A", "b"], "lowercase letters"),
    ],
)
def test_names_that_are_none_are_refused_in_words(asked: list[Any], names: list[str], said: str) -> None:
    code, _, told = typed(*names)
    assert code == 2
    assert said in told
    assert "Traceback" not in told


def test_the_flow_and_the_command_take_the_same_settings(asked: list[Any]) -> None:
    flow, parameters = load_deployment("compare/local", {"runs": ["a", "b"]})
    found = settings_type("compare/local").of(parameters["platform"], parameters["knobs"])
    assert (flow.name, isinstance(found, CompareSettings), getattr(found, "runs", None)) == (
        "compare",
        True,
        ["a", "b"],
    )
