"""A run is opened and closed here: its runs in MLflow, its page in Prefect, the context that its stages get.

The pipeline's verdict decides the state of its MLflow runs, never a dying process. Both observers are told through an
outbox: neither can end a run, and the first error is the one that comes out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tasks.clients.mlflow_evidence import USD
from tasks.clients.mlflow_runs import MlflowRuns
from tasks.clients.mlflow_view import all_runs_url
from tasks.evidence.mlflow_log import Address, KeptLog, MlflowTaker
from tasks.evidence.outbox import Outbox
from tasks.evidence.prefect_attempts import attempts_of, own_flow_run_id
from tasks.evidence.prefect_page import PageTaker, PrefectPage, log_warning
from tasks.evidence.source import source_tags
from tasks.evidence.watched_page import WatchedPage
from tasks.run import Dataset, MadeModel, Page, RunContext, RunLog, StageBook
from tasks.settings import TrackingSettings, dotted
from tasks.watch import Opened, Warned, teller

USD_PER_H = "usd_per_h"
"""Parameter of a run: what its machines cost an hour, together."""
DESCRIPTION = "mlflow.note.content"
"""The tag that MLflow's page shows as a run's description."""


@dataclass(frozen=True)
class About:
    """What a run's page in MLflow says of it."""

    entry_point: str
    """File and function of the flow."""
    description: str
    """In a few sentences."""


@contextmanager
def tracked_run(
    settings: TrackingSettings,
    run_name: str,
    params: Mapping[str, Any],
    role: str = "pipeline",
    tags: Mapping[str, str] | None = None,
    about: About | None = None,
    links: Mapping[str, str] | None = None,
) -> Iterator[RunContext]:
    """A run in MLflow, open while the block runs: FINISHED after it, FAILED on an error, KILLED on a stop.

    Raises TrackingUnavailable before anything else has started; later on MLflow may come and go.
    """
    runs = MlflowRuns(settings.tracking_uri, settings.experiment)
    opened = runs.open(run_name, role, tags or {})
    changed = opened.params(dotted(params))
    opened.tags({**source_tags(about.entry_point), DESCRIPTION: about.description} if about else {})
    attempt = opened.joined(own_flow_run_id())
    with _outboxes(settings, runs) as (to_mlflow, taker, to_page):
        run = KeptLog(to_mlflow, taker, Address(run_id=opened.run_id), opened.url, run_name)
        run.begin()
        logs_dir = Path(settings.logs_dir, run_name)
        context = _context(run_name, run, PrefectPage(run_name, to_page.put), logs_dir)
        context.page.say(f"MLflow: {run.url}")
        if links:
            places = {"MLflow": run.url, "MLflow, all runs": all_runs_url(run.url), **links}
            told = [f"- {name}: [{address}]({address})" for name, address in places.items()]
            context.page.markdown("links", "\n".join(told), "where to look")
        if changed:
            _tell_what_changed(context, params, changed)
        with _ended_by_its_verdict(run):
            try:
                yield context
            finally:
                run.metrics(attempt, stage_seconds(context) | spent_usd(context, params))


def stage_seconds(context: RunContext) -> dict[str, float]:
    """How long each stage took, and the whole."""
    stages = {f"stage/{name}_s": round(seconds, 3) for name, seconds in context.stages.seconds().items()}
    return {**stages, "stage/whole_run_s": round(context.wall_s, 3)}


def spent_usd(context: RunContext, params: Mapping[str, Any]) -> dict[str, float]:
    """What the machines cost for as long as the run took; nothing where they have no price."""
    usd_per_h = params.get(USD_PER_H)
    return {USD: round(usd_per_h * context.wall_s / 3600, 4)} if usd_per_h else {}


def _tell_what_changed(context: RunContext, params: Mapping[str, Any], changed: Mapping[str, tuple[str, str]]) -> None:
    """An earlier attempt's parameters stay in MLflow: what this one has instead must not be lost."""
    text = json.dumps(params, indent=1)
    kept = f"settings/{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    context.run.text(text, kept)
    told = "; ".join(f"{key} is {now}, was {before}" for key, (before, now) in changed.items())
    context.page.warn(f"run {context.run_name} was begun with other settings: {told}. These are kept as {kept}")


@contextmanager
def _outboxes(settings: TrackingSettings, runs: MlflowRuns) -> Iterator[tuple[Outbox, MlflowTaker, Outbox]]:
    """To MLflow and to the page; both are given time to take what is left, whatever ended the block."""
    folder, taker, tell = Path(settings.outbox_dir), MlflowTaker(runs), teller()

    def warn(text: str) -> None:
        tell(Warned(text))
        log_warning(text)

    to_mlflow = Outbox(folder, f"MLflow at {settings.tracking_uri}", taker.take, warn)
    to_page = Outbox(folder, "Prefect", PageTaker().take, warn)
    try:
        yield to_mlflow, taker, to_page
    finally:
        for outbox in (to_mlflow, to_page):
            outbox.close(settings.flush_timeout_s)


def untracked_run(run_name: str) -> RunContext:
    """For flows that look or put in order: Prefect shows them, MLflow does not."""
    return _context(run_name, Unrecorded(), PrefectPage(run_name, PageTaker().send_or_warn))


def _context(run_name: str, run: RunLog, page: Page, logs_dir: Path | None = None) -> RunContext:
    tell, flow_run_id = teller(), own_flow_run_id()
    tell(Opened(run_name, flow_run_id, run.url))
    return RunContext(
        run_name,
        run,
        WatchedPage(page, tell),
        stages=StageBook(tell=tell),
        flow_run_id=flow_run_id,
        attempts=partial(attempts_of, run_name),
        tell=tell,
        logs_dir=logs_dir,
    )


class Unrecorded:
    """Takes everything and keeps nothing."""

    run_id, url = "", ""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Kept nowhere."""

    def text(self, text: str, artifact_path: str) -> None:
        """Kept nowhere."""

    def file(self, path: Path, folder: str) -> None:
        """Kept nowhere."""

    def tags(self, tags: Mapping[str, str]) -> None:
        """Kept nowhere."""

    def inputs(self, datasets: Sequence[Dataset]) -> None:
        """Kept nowhere."""

    def table(self, rows: Sequence[Mapping[str, Any]], artifact_path: str) -> None:
        """Kept nowhere."""

    def model(self, made: MadeModel) -> None:
        """Kept nowhere."""

    def read(self, artifact_path: str) -> None:
        """Nothing was kept."""

    def params(self, params: Mapping[str, Any]) -> None:
        """Kept nowhere."""

    def begin(self) -> None:
        """Kept nowhere."""

    def end(self, status: str) -> None:
        """Kept nowhere."""

    def child(self, role: str, tags: Mapping[str, str]) -> Unrecorded:
        return self


@contextmanager
def _ended_by_its_verdict(run: KeptLog) -> Iterator[None]:
    try:
        yield
    except Exception:
        run.end("FAILED")
        raise
    except BaseException:
        run.end("KILLED")
        raise
    run.end("FINISHED")
