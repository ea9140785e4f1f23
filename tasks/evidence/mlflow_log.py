"""A run's figures, files and tags on their way to MLflow: put into the outbox here, taken out of it here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tasks.clients.mlflow_runs import MlflowRun, MlflowRuns
from tasks.errors import TrackingUnavailable
from tasks.evidence.outbox import Entry, ObserverAway, Outbox
from tasks.run import Dataset, MadeModel


@dataclass(frozen=True)
class Address:
    """Which MLflow run something is for: one that is known by its id, or a child that is found or made when told."""

    run_id: str = ""
    parent_id: str = ""
    run_name: str = ""
    role: str = ""
    tags: dict[str, str] = field(default_factory=dict)


class MlflowTaker:
    """Tells MLflow what comes out of the outbox."""

    def __init__(self, runs: MlflowRuns) -> None:
        self._runs = runs
        self._known: dict[str, MlflowRun] = {}

    def take(self, entry: Entry) -> None:
        """Raises ObserverAway, or TrackingRefused."""
        arguments = dict(entry.arguments)
        address = Address(**arguments.pop("address"))
        try:
            tell(self._run(address), entry.verb, arguments)
        except TrackingUnavailable as error:
            raise ObserverAway(str(error)) from error

    def id_of(self, address: Address) -> str:
        """The run's id; empty while MLflow has not heard of it, or does not answer."""
        known = self._known.get(repr(address))
        if address.run_id or known:
            return address.run_id or (known.run_id if known else "")
        try:
            return self._runs.find(address.run_name, address.role, address.tags, address.parent_id)
        except TrackingUnavailable:
            return ""

    def read(self, address: Address, artifact_path: str) -> str | None:
        """An artifact's text; raises TrackingUnavailable."""
        return self._run(address).read(artifact_path)

    def _run(self, address: Address) -> MlflowRun:
        key = repr(address)
        if key not in self._known:
            self._known[key] = (
                self._runs.run(address.run_id)
                if address.run_id
                else self._runs.open(address.run_name, address.role, address.tags, address.parent_id)
            )
        return self._known[key]


class KeptLog:
    """A run in MLflow, told through the outbox (RunLog in tasks/run.py)."""

    def __init__(self, outbox: Outbox, taker: MlflowTaker, address: Address, url: str, run_name: str) -> None:
        self._outbox, self._taker, self._address = outbox, taker, address
        self.url, self._run_name = url, run_name

    @property
    def run_id(self) -> str:
        return self._taker.id_of(self._address)

    def child(self, role: str, tags: Mapping[str, str]) -> KeptLog:
        address = Address(parent_id=self.run_id, run_name=self._run_name, role=role, tags=dict(tags))
        return KeptLog(self._outbox, self._taker, address, self.url, self._run_name)

    def read(self, artifact_path: str) -> str | None:
        return self._taker.read(self._address, artifact_path)

    def params(self, params: Mapping[str, Any]) -> None:
        self._put("params", params=dict(params))

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._put("metrics", step=step, values=dict(values))

    def text(self, text: str, artifact_path: str) -> None:
        self._put("text", text=text, artifact_path=artifact_path)

    def file(self, path: Path, folder: str) -> None:
        self._put("file", path=str(path.absolute()), folder=folder)

    def tags(self, tags: Mapping[str, str]) -> None:
        self._put("tags", tags=dict(tags))

    def inputs(self, datasets: Sequence[Dataset]) -> None:
        self._put("inputs", datasets=[asdict(dataset) for dataset in datasets])

    def table(self, rows: Sequence[Mapping[str, Any]], artifact_path: str) -> None:
        self._put("table", rows=[dict(row) for row in rows], artifact_path=artifact_path)

    def model(self, made: MadeModel) -> None:
        self._put("model", made=asdict(made))

    def begin(self) -> None:
        """It goes on: what an earlier attempt says of its end, and could not say until now, is not the end of this."""
        self._put("begin")

    def end(self, status: str) -> None:
        """``status`` is FINISHED, FAILED or KILLED."""
        self._put("end", status=status)

    def _put(self, verb: str, **arguments: Any) -> None:
        self._outbox.put(verb, address=vars(self._address), **arguments)


def tell(run: MlflowRun, verb: str, arguments: Mapping[str, Any]) -> None:
    """One entry, as the call it stands for."""
    match verb:
        case "params":
            run.params(arguments["params"])
        case "metrics":
            run.metrics(arguments["step"], arguments["values"])
        case "text":
            run.text(arguments["text"], arguments["artifact_path"])
        case "file":
            run.file(Path(arguments["path"]), arguments["folder"])
        case "tags":
            run.tags(arguments["tags"])
        case "inputs":
            run.inputs([Dataset(**dataset) for dataset in arguments["datasets"]])
        case "table":
            run.table(arguments["rows"], arguments["artifact_path"])
        case "model":
            made = arguments["made"]
            run.model(MadeModel(**{**made, "dataset": tuple(made["dataset"])}))
        case "begin":
            run.begin()
        case "end":
            run.end(arguments["status"])
        case unknown:
            raise ValueError(f"MLflow is told nothing by the name of {unknown}")
