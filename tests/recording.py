"""A run's context that records what its stages tell it: one list of events, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.run import Dataset, MadeModel, RunContext


class RecordingLog:
    """An MLflow run's verbs (tasks/clients/mlflow_runs.py)."""

    def __init__(self, events: list[str], run_id: str, url: str = "http://mlflow") -> None:
        self.events, self.run_id, self.url = events, run_id, url
        self.texts: dict[str, str] = {}
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self.models: dict[str, MadeModel] = {}
        self.figures: dict[tuple[int, str], float] = {}
        self.children: dict[str, RecordingLog] = {}

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.figures |= {(step, name): value for name, value in values.items()}
        self.events.append(f"metrics {step}")

    def text(self, text: str, artifact_path: str) -> None:
        self.texts[artifact_path] = text
        self.events.append(f"log {artifact_path}")

    def file(self, path: Path, folder: str) -> None:
        self.events.append(f"log {folder}/{path.name}")

    def params(self, params: Mapping[str, Any]) -> None:
        self.events.append(f"params {len(params)}")

    def inputs(self, datasets: Sequence[Dataset]) -> None:
        self.events.append(f"inputs {', '.join(dataset.context for dataset in datasets)}")

    def table(self, rows: Sequence[Mapping[str, Any]], artifact_path: str) -> None:
        self.tables[artifact_path] = [dict(row) for row in rows]
        self.events.append(f"table {artifact_path}")

    def model(self, made: MadeModel) -> None:
        self.models[made.name] = made
        self.events.append(f"model {made.name}")

    def begin(self) -> None:
        self.events.append("begin")

    def end(self, status: str) -> None:
        self.events.append(f"end {status}")

    def read(self, artifact_path: str) -> str | None:
        return self.texts.get(artifact_path)

    def child(self, role: str, tags: Mapping[str, str]) -> RecordingLog:
        name = "-".join([role, *tags.values()])
        return self.children.setdefault(name, RecordingLog(self.events, name))

    def tags(self, tags: Mapping[str, str]) -> None:
        self.events.append(f"tags {', '.join(tags)}")


class RecordingPage:
    """A Prefect page's verbs (tasks/evidence/prefect_page.py)."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.said: list[str] = []
        self.markdowns: dict[str, str] = {}

    def say(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.said.append(text)

    def job_line(self, text: str) -> None:
        self.said.append(text)

    def table(self, key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
        self.events.append(f"table {key}")

    def markdown(self, key: str, text: str, description: str) -> None:
        self.markdowns[key] = text
        self.events.append(f"markdown {key}")

    def picture(self, key: str, url: str) -> None:
        self.events.append(f"picture {key} {url}")

    def progress(self, done: int, total: int, text: str) -> None:
        self.events.append(f"progress {done}/{total}")


def recording(run_name: str = "r") -> tuple[RunContext, list[str]]:
    """A context, and the list of what it was told."""
    events: list[str] = []
    return RunContext(run_name, RecordingLog(events, "p"), RecordingPage(events)), events
