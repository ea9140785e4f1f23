"""Settings of what a run leaves behind for its reader."""

from __future__ import annotations

from pydantic import Field, field_validator

from tasks.names import RunName
from tasks.settings import Settings, TrackingSettings


class ReportSettings(Settings):
    """What a run leaves behind for its reader."""

    reports_dir: str
    """Folder of ``<run_name>.json``, ``latest.json`` and the pictures."""
    profile: str
    """Name of the parameter set, shown in reports: local, local-long, hyperpod."""
    note: str = ""
    """Why there is this run, in somebody's words: its description in MLflow, and in the report."""


class CompareSettings(Settings):
    """Which runs are compared, and where that is written."""

    runs: list[RunName] = Field(min_length=2, max_length=20)
    """Names of runs, as MLflow has them; the others are held against each one before them."""
    tracking: TrackingSettings
    """Where the runs are."""
    comparisons_dir: str
    """Folder for a folder a comparison: tables as CSV, pages, the picture of all curves."""

    @field_validator("runs")
    @classmethod
    def _are_several(cls, runs: list[str]) -> list[str]:
        if len(set(runs)) < len(runs):
            raise ValueError(f"{', '.join(runs)}: a run is named twice; name each once")
        return runs
