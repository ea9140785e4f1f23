"""What a run came to, for the terminal: evaluations, the gate's sentence, where to look, what to ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from flows.cli.words import duration
from tasks.clients.mlflow_view import all_runs_url
from tasks.evidence.report import curl_lines, judged

DECISIONS = {
    "promote": "promoted: it is champion now",
    "keep": "kept back: the champion stays",
    "reject": "rejected: nothing changes for users",
}


def table(
    columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[object]], title: str = "", can_fold: bool = True
) -> Table:
    """A plain table; a column is its head and whether it holds numbers."""
    made = Table(
        box=box.SIMPLE_HEAD,
        title=title or None,
        title_justify="left",
        pad_edge=False,
        show_edge=False,
        padding=(0, 0 if not can_fold else 1),
    )
    for head, is_number in columns:
        made.add_column(head, justify="right" if is_number else "left", overflow="fold", no_wrap=not can_fold)
    for row in rows:
        made.add_row(*("" if cell is None else str(cell) for cell in row))
    return made


def evaluations(report: Mapping[str, Any]) -> Table:
    best, eval_set = report["best"], report["eval_set"]
    columns = [("step", True), (f"solved of {eval_set['num_mazes']}", True), ("mean turns", True)]
    columns += [("unparsable replies", True), ("", False)]
    notes = {0: "the base", best["step"]: "published"}
    rows = [
        (row["step"], row["solved"], f"{row['mean_turns']:.1f}", row["unparsable_replies"], notes.get(row["step"]))
        for row in report["evals"]
    ]
    return table(columns, rows)


def gate_sentence(report: Mapping[str, Any]) -> str:
    """What the gate decided and why, by the judge set; what the endpoint solves of the evaluation mazes beside it."""
    gate, proof, num_mazes = report["gate"], report["proof"], report["eval_set"]["num_mazes"]
    solved = (
        f"{proof['endpoint_solved']} of {num_mazes} mazes through the endpoint, {proof['training_solved']} in training"
    )
    if not proof["holds"]:
        return f"Not proven, so not promoted: {'; '.join(proof['failures'])} ({solved})."
    said = DECISIONS.get(gate["decision"], gate["decision"])
    return f"Step {report['best']['step']} is {said}. {judged(report['judge'])} {gate['reason']}. Besides: {solved}."


def places(report: Mapping[str, Any], flow_run_url: str, ray_url: str) -> list[tuple[str, str]]:
    """Where to look."""
    return [
        ("Prefect", flow_run_url),
        ("MLflow", report["mlflow"]["url"]),
        ("all runs", all_runs_url(report["mlflow"]["url"])),
        ("Ray", ray_url),
        ("endpoint", f"{report['served']['url']}/v1"),
    ]


def result_of_run(report: Mapping[str, Any], flow_run_url: str, ray_url: str) -> list[RenderableType]:
    """A finished run, from the table to the two questions that anybody can ask the endpoint."""
    parts: list[RenderableType] = [Text(""), evaluations(report), Text(""), Text(gate_sentence(report)), Text("")]
    found = [(name, url) for name, url in places(report, flow_run_url, ray_url) if url]
    parts += [Text(f"{name:<10}{url}") for name, url in found]
    parts += [Text(f"{'took':<10}{duration(report['wall_s'])}")]
    return parts


def show(console: Console, report: Mapping[str, Any], flow_run_url: str, ray_url: str) -> None:
    for part in result_of_run(report, flow_run_url, ray_url):
        console.print(part, soft_wrap=isinstance(part, Text), highlight=False)
    for line in curl_lines(report).splitlines():
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def leftovers(rows: Sequence[Mapping[str, Any]], cost: float | None = None) -> RenderableType:
    """What clean-up found."""
    if not rows:
        return Text("nothing is left")
    columns = [("part", False), ("what", False), ("found", False), ("USD/h", True), ("stays because", False)]
    keys = ("part", "name", "found", "usd_per_h", "keep")
    made = table(columns, [[row.get(key, "") for key in keys] for row in rows])
    return Group(made, *([Text(f"{cost} USD an hour together")] if cost is not None else []))
