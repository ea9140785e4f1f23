"""What the small world keeps of its runs, and MLflow's registry in its database."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tasks.run import Dataset, MadeModel
from tests.every_cut import outside


class Runs:
    """MLflow's runs of one pipeline run: the verbs of tasks/run.py RunLog, as MLflow keeps what it is told."""

    url = "http://mlflow/#/run"

    def __init__(self, run_id: str = "p") -> None:
        self.run_id = run_id
        kinds = ("params", "metrics", "texts", "files", "tags", "inputs", "tables", "models")
        self.kept: dict[str, dict[Any, Any]] = {kind: {} for kind in kinds}
        self.children: dict[str, Runs] = {}

    def params(self, params: Mapping[str, Any]) -> None:
        self.kept["params"] = {**params, **self.kept["params"]}

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.kept["metrics"] = {**{(step, key): value for key, value in values.items()}, **self.kept["metrics"]}

    def text(self, text: str, artifact_path: str) -> None:
        self.kept["texts"][artifact_path] = text

    def file(self, path: Path, folder: str) -> None:
        self.kept["files"][f"{folder}/{path.name}"] = True

    def tags(self, tags: Mapping[str, str]) -> None:
        self.kept["tags"].update(tags)

    def read(self, artifact_path: str) -> str | None:
        return self.kept["texts"].get(artifact_path)

    def inputs(self, datasets: Sequence[Dataset]) -> None:
        self.kept["inputs"].update({(one.name, one.digest): one.context for one in datasets})

    def table(self, rows: Sequence[Mapping[str, Any]], artifact_path: str) -> None:
        self.kept["tables"][artifact_path] = [dict(row) for row in rows]

    def model(self, made: MadeModel) -> None:
        """MLflow finds the model by its name and run, and keeps each figure once."""
        self.kept["models"].setdefault(made.name, made)

    def begin(self) -> None:
        self.kept["tags"].pop("status", None)

    def end(self, status: str) -> None:
        self.kept["tags"].setdefault("status", status)
        for child in self.children.values():
            child.kept["tags"].setdefault("status", status)

    def child(self, role: str, tags: Mapping[str, str]) -> Runs:
        name = "-".join([role, *tags.values()])
        return outside(self.children.setdefault(name, Runs(name)))


def registry(database: Path) -> dict[str, Any]:
    """What MLflow's registry holds: models, adapters with their tags, aliases."""
    with closing(sqlite3.connect(database)) as rows:
        return {
            "models": sorted(name for (name,) in rows.execute("SELECT name FROM registered_models")),
            "tags": sorted(rows.execute("SELECT name, version, key, value FROM model_version_tags").fetchall()),
            "aliases": sorted(rows.execute("SELECT name, alias, version FROM registered_model_aliases").fetchall()),
        }


def emptied(database: Path) -> None:
    """A registry without models; making a database anew takes MLflow seconds."""
    with closing(sqlite3.connect(database)) as rows, rows:
        for table in ("registered_model_aliases", "model_version_tags", "model_versions", "registered_models"):
            rows.execute(f"DELETE FROM {table}")
