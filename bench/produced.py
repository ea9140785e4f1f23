"""What a run's training told beside what MLflow holds of it: ``python -m bench.produced <run name>``.

Reads the events that the flow kept (``.local/runs/<run>/<job>.events.jsonl``) and asks MLflow for each figure and file.
Exits with 1 where something is missing, or stands there twice.
"""

from __future__ import annotations

import gzip
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from mlflow import MlflowClient

from flows.cli.services import enter_project
from flows.deployments import load_settings
from rl.events import PREFIX, Evaluated, Event, Metrics, Rollouts, Saved, Wrote, lineage, parse_line
from tasks.clients.mlflow_evidence import EvidenceOfRuns
from tasks.jobs.news import ORDER
from tasks.training.curves import EPISODES, STEP_CURVES, evaluation_curves
from tasks.training.rollouts import TABLE

Figures = Mapping[tuple[str, int], int]
"""Name and step -> how often it stands there."""


@dataclass(frozen=True)
class Line:
    """One kind of thing that was produced."""

    what: str
    where: str
    wanted: frozenset[object]
    missing: frozenset[object]
    twice: frozenset[object] = frozenset()

    @property
    def holds(self) -> bool:
        return not self.missing and not self.twice


def events_in(path: Path) -> list[Event]:
    """What led to the run's result, in order."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    told = [parse_line(PREFIX + line) for line in text.split("\n") if line]
    return list(lineage(event for event in told if event))


def lines_of(client: MlflowClient, parent_id: str, child_id: str, events: Sequence[Event]) -> list[Line]:
    """Everything that the events name, looked for in the run and in its last attempt's."""
    reports = {event.report.step: event.report for event in events if isinstance(event, Evaluated)}
    numbers = {(name, event.step) for event in events if isinstance(event, Metrics) for name in event.values}
    own = numbers | {(name, step) for step, report in reports.items() for name in report.metrics()}
    curves = {(STEP_CURVES[name], step) for name, step in numbers if name in STEP_CURVES}
    curves |= {(name, step) for step, report in reports.items() for name in evaluation_curves(report)}
    exports = {event.step for event in events if isinstance(event, Saved) and event.kind == "export"}
    run = client.get_run(parent_id)
    outputs = [output.step for output in run.outputs.model_outputs] if run.outputs else []
    inputs = [one.tags[0].value for one in run.inputs.dataset_inputs] if run.inputs else []
    files, own_files = (_files(client, run_id) for run_id in (parent_id, child_id))
    tables = {f"{EPISODES}/step_{step:06d}.json" for step in reports} | {ORDER}
    tables |= {TABLE} if any(isinstance(event, Rollouts) for event in events) else set()
    kept = {f"evaluations/step_{step:06d}.json" for step in reports}
    kept |= {f"job/{event.name}" for event in events if isinstance(event, Wrote)}
    return [
        _figures("SkyRL's numbers", "attempt", own, figures(client, child_id)),
        _figures("curves", "run", curves, figures(client, parent_id)),
        _things("evaluations and files of the job", "attempt", kept, own_files),
        _things("tables and order", "run", tables, files),
        _things("exported steps as models", "run", exports & reports.keys(), outputs),
        _things("sets of mazes", "run", {"training", "selection"}, inputs),
    ]


def figures(client: MlflowClient, run_id: str) -> dict[tuple[str, int], int]:
    """Every figure of a run, by the name that it was told under."""
    found: dict[tuple[str, int], int] = defaultdict(int)
    for key in client.get_run(run_id).data.metrics:
        for point in client.get_metric_history(run_id, key):
            found[unquote(key.replace(":", "%")), point.step] += 1
    return found


def _files(client: MlflowClient, run_id: str, folder: str | None = None) -> list[str]:
    items = client.list_artifacts(run_id, folder)
    below = [path for item in items if item.is_dir for path in _files(client, run_id, item.path)]
    return [*(item.path for item in items if not item.is_dir), *below]


def _figures(what: str, where: str, wanted: Iterable[object], held: Figures) -> Line:
    names = frozenset(wanted)
    return Line(what, where, names, names - held.keys(), frozenset(name for name, count in held.items() if count > 1))


def _things(what: str, where: str, wanted: Iterable[object], held: Sequence[object]) -> Line:
    names = frozenset(wanted)
    return Line(what, where, names, names - set(held), frozenset(one for one in names if held.count(one) > 1))


def as_markdown(lines: Iterable[Line]) -> str:
    """A row a kind; below it, whatever is missing or doubled, by name."""
    lines = list(lines)
    rows = ["| produced | in MLflow's | told | missing | twice |", "|---|---|---:|---:|---:|"]
    rows += [
        f"| {line.what} | {line.where} | {len(line.wanted)} | {len(line.missing)} | {len(line.twice)} |"
        for line in lines
    ]
    odd = {
        "missing": [one for line in lines for one in line.missing],
        "twice": [one for line in lines for one in line.twice],
    }
    return "\n".join([*rows, *(f"{how}: {', '.join(map(str, names))}" for how, names in odd.items() if names)])


def main(argv: Sequence[str]) -> int:
    enter_project()
    run_name = argv[1]
    tracking = load_settings("rollback/local", {}).tracking
    (found,) = EvidenceOfRuns(tracking.tracking_uri, tracking.experiment).named([run_name])
    (events_path, *_) = sorted(Path(tracking.logs_dir, run_name).glob("*-train-*.events.jsonl"), reverse=True)
    client, parent_id = MlflowClient(tracking.tracking_uri), found.run.run_id
    child_id = found.report["mlflow"]["child_run_id"]
    lines = lines_of(client, parent_id, child_id, events_in(events_path))
    print(as_markdown(lines))
    print(
        "\n".join(
            ["", "files of the run:", *_files(client, parent_id), "", "of the attempt:", *_files(client, child_id)]
        )
    )
    return 0 if all(line.holds for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
