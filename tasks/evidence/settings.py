"""Settings of what a run leaves behind for its reader."""

from __future__ import annotations

from tasks.settings import Settings


class ReportSettings(Settings):
    """What a run leaves behind for its reader."""

    reports_dir: str
    """Folder of ``<run_name>.json``, ``latest.json`` and the pictures."""
    profile: str
    """Name of the parameter set, shown in reports: local, local-long, hyperpod."""
    note: str = ""
    """Why there is this run, in somebody's words: its description in MLflow, and in the report."""
