"""A comparison of runs for its reader: in words, as markdown, as one HTML page, as CSV. Pure but for ``write``."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from tasks.evidence.compare_tables import RunTables
from tasks.evidence.pictures import save_png

HEADINGS = {
    "knobs": "Settings that differ",
    "results": "Results",
    "paired": "Maze by maze",
    "cost": "Cost",
}
NOTES = {
    "results": "Shares with 95% Wilson intervals. The judge mazes chose no step; the evaluation mazes did, which "
    "flatters the best step a little.",
    "paired": "Won: solved by the run alone; lost: by the other alone. p is McNemar's, exact and two-sided, not "
    "corrected for the number of pairs; the difference has Newcombe's 95% interval. Of each run it is the kept step, "
    "as evaluated while training or, on judge mazes, through the endpoint.",
    "cost": "Hours of all attempts together. Dollars: the machines' prices in prefect.yaml over those hours.",
}
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a}"
    "table{border-collapse:collapse;margin:.5rem 0}th,td{border-bottom:1px solid #ddd;padding:.25rem .7rem;"
    "text-align:left;vertical-align:top}img{max-width:100%}p{color:#555;max-width:50rem}.scroll{overflow-x:auto}"
)


def shown(tables: RunTables) -> dict[str, pd.DataFrame]:
    """The same as texts: a column a run, but for the pairs."""
    return {
        "knobs": tables.knobs,
        "results": _in_words(tables.results, _result_in_words).T,
        "paired": _in_words(tables.paired, _pair_in_words),
        "cost": _in_words(tables.cost, _cost_in_words).T,
    }


def as_markdown(tables: RunTables) -> str:
    """All tables under their headings."""
    parts = [f"# {' against '.join(tables.results.index)}"]
    for name, table in shown(tables).items():
        body = _markdown_table(table) if len(table) else "They are the same."
        parts += [f"## {HEADINGS[name]}", body, NOTES.get(name, "")]
    return "\n\n".join(part for part in parts if part) + "\n"


def as_html(tables: RunTables, picture: bytes) -> str:
    """One page that needs nothing from the net."""
    title = _escaped(" against ".join(tables.results.index))
    parts = [f"<h1>{title}</h1>"]
    for name, table in shown(tables).items():
        is_paired = name == "paired"
        body = (
            table.to_html(border=0, index=not is_paired, justify="left") if len(table) else "<p>They are the same.</p>"
        )
        parts += [f"<h2>{HEADINGS[name]}</h2>", f'<div class="scroll">{body}</div>', f"<p>{NOTES.get(name, '')}</p>"]
    data = base64.b64encode(picture).decode()
    parts += ["<h2>Curves</h2>", f'<img alt="curves of the runs" src="data:image/png;base64,{data}">']
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def write(tables: RunTables, figure: Figure, folder: Path) -> Mapping[str, Path]:
    """``comparison.md``, ``comparison.html``, ``curves.png`` and a CSV a table, with numbers as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"curves": save_png(figure, folder / "curves.png")}
    files |= {"markdown": folder / "comparison.md", "html": folder / "comparison.html"}
    files["markdown"].write_text(as_markdown(tables), encoding="utf-8")
    files["html"].write_text(as_html(tables, files["curves"].read_bytes()), encoding="utf-8")
    for name, table in tables.by_name.items():
        files[name] = folder / f"{name}.csv"
        table.to_csv(files[name], index=name != "paired")
    return files


def _in_words(table: pd.DataFrame, of_row: Callable[[Mapping[Any, Any]], dict[str, str]]) -> pd.DataFrame:
    return pd.DataFrame([of_row(row) for row in table.to_dict("records")], index=table.index)


def _result_in_words(row: Mapping[Any, Any]) -> dict[str, str]:
    step = row["best_step"]
    return {
        "state": f"{row['state']}, {row['steps']} steps",
        "base, evaluation mazes": _rated(row, "base"),
        "best step, evaluation mazes": _rated(row, "best") + ("" if _is_empty(step) else f", step {step:g}"),
        "ceiling": _number(row["ceiling"], "g"),
        "base, judge mazes": _rated(row, "judge_base"),
        "champion before, judge mazes": _rated(row, "judge_champion"),
        "best step, judge mazes": _rated(row, "judge_candidate"),
        "gain over the base": _points(row["gain_value"], row["gain_low"], row["gain_high"], row["gain_p_value"]),
        "gate": row["decision"] or "-",
        "because": row["reason"] or "-",
    }


def _pair_in_words(row: Mapping[Any, Any]) -> dict[str, str]:
    return {
        "mazes": row["mazes"],
        "run": f"{row['run']} against {row['against']}",
        **{name: _number(row[name], "g") for name in ("won", "lost", "both", "neither")},
        "difference": _points(row["difference"], row["low"], row["high"], row["p_value"]),
        "": row["said"],
    }


def _cost_in_words(row: Mapping[Any, Any]) -> dict[str, str]:
    hours = {"wall time": "wall_hours", "training": "training_hours", "GPU hours": "gpu_hours"}
    spent = {label: f"{_number(row[name], '.2f')} h".replace("- h", "-") for label, name in hours.items()}
    return {**spent, "US dollars": _number(row["usd"], ".2f")}


def _rated(row: Mapping[Any, Any], name: str) -> str:
    if _is_empty(row[f"{name}_solved"]):
        return "-"
    low, high = row[f"{name}_rate_low"], row[f"{name}_rate_high"]
    return f"{row[f'{name}_solved']:g} of {row[f'{name}_mazes']:g}, {row[f'{name}_rate']:.0%} ({low:.0%} to {high:.0%})"


def _points(value: Any, low: Any, high: Any, p_value: Any) -> str:
    if _is_empty(value):
        return "-"
    return f"{100 * value:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f}), p={p_value:.2g}"


def _number(value: Any, spec: str) -> str:
    return "-" if _is_empty(value) else format(value, spec)


def _is_empty(value: Any) -> bool:
    return value is None or value != value


def _markdown_table(table: pd.DataFrame) -> str:
    named = table if isinstance(table.index, pd.RangeIndex) else table.rename_axis(index="").reset_index()
    rows: list[Sequence[Any]] = [list(named.columns), ["---"] * len(named.columns), *named.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(_cell(str(cell)) for cell in row) + " |" for row in rows)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split()).replace("<", "&lt;")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
