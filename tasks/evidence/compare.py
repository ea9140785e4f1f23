"""Runs are compared here: by MLflow alone, as tables, pages and a picture of all curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.clients.mlflow_evidence import EvidenceOfRuns
from tasks.evidence.compare_pages import as_markdown, write
from tasks.evidence.compare_pictures import curves_of
from tasks.evidence.compare_tables import RunTables, tables_of
from tasks.evidence.report import artifact_url
from tasks.evidence.settings import CompareSettings
from tasks.run import RunContext
from tasks.stage import stage

PAGE_KEY, FOLDER = "comparison", "comparison"
"""Of the artifact on the run's page, and in MLflow."""


@dataclass(frozen=True)
class RunComparison:
    """What was found, and where it is written."""

    tables: RunTables
    files: Mapping[str, Path]


def compare_runs(settings: CompareSettings) -> RunComparison:
    """Compare runs by name and write what is found; raises UnknownRun, TrackingUnavailable."""
    tracking = settings.tracking
    runs = EvidenceOfRuns(tracking.tracking_uri, tracking.experiment).named(settings.runs)
    tables = tables_of(runs)
    # A file's name has at most 255 bytes; a run's has 63.
    folder = Path(settings.comparisons_dir, "--".join(settings.runs)[:200])
    return RunComparison(tables, write(tables, curves_of(runs), folder))


@stage
def compare_and_show(context: RunContext, settings: CompareSettings) -> dict[str, Any]:
    """The same with everything kept in MLflow, and on the page as ``comparison`` and ``curves``."""
    found = compare_runs(settings)
    for path in found.files.values():
        context.run.file(path, FOLDER)
    html = artifact_url(context, f"{FOLDER}/{found.files['html'].name}")
    text = f"{as_markdown(found.tables)}\n[The same with all curves]({html}), one page without a server.\n"
    context.page.markdown(PAGE_KEY, text, "Runs beside each other")
    context.page.picture("curves", artifact_url(context, f"{FOLDER}/{found.files['curves'].name}"))
    return {"compared": settings.runs, "mlflow": {"url": context.run.url}}
