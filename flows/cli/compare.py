"""Runs beside each other in the terminal: what the compare flow writes, without Prefect."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from flows.cli.result import table
from flows.cli.services import BadKnob
from tasks.errors import UnknownRun


def show_comparison(console: Console, names: Sequence[str]) -> None:
    """Compare, print the tables, say where they are kept; raises BadKnob for names that are none."""
    from flows.deployments import load_settings
    from flows.refusals import SettingsRefused
    from tasks.evidence.compare import compare_runs
    from tasks.evidence.compare_pages import HEADINGS, shown

    try:
        found = compare_runs(load_settings("compare/local", {"runs": list(names)}))
    except SettingsRefused as error:
        raise BadKnob("\n".join(error.reasons)) from error
    except UnknownRun as error:
        raise BadKnob(str(error)) from error
    for name, frame in shown(found.tables).items():
        if not len(frame):
            console.print(Text(f"{HEADINGS[name]}: they are the same"))
            continue
        named = frame if name == "paired" else frame.rename_axis(index="").reset_index()
        columns = [(str(column), False) for column in named.columns]
        console.print(table(columns, named.to_numpy().tolist(), HEADINGS[name]), highlight=False)
        console.print()
    console.print(Text(f"written: {found.files['html']}, with CSV and curves beside it"), soft_wrap=True)
