"""Learning curves of ours and of stock SkyRL: ``python -m bench.curves [sides=stock_closing_once,ours] [steps=12]``.

Same settings, seed, mazes and evaluations; the sides are trained one after the other, as Ray jobs (bench/side.py).
``stock`` is SkyRL as it is; ``stock_closing_once`` leaves out the second end of turn, so that both start as the same
policy. Each evaluation is compared maze by maze (exact McNemar test). Writes ``.local/bench/curves.json`` and
``curves.png``; a side that is not asked for keeps the curve of an earlier call.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench.grpo import Collected, side_job
from flows.deployments import load_settings
from flows.settings.retrain import RetrainSettings
from rl.maze.score import EvalReport
from tasks.evidence.pictures import save_png
from tasks.jobs.ray_jobs import RayJobs
from tasks.jobs.submit import entrypoint, followed_to_its_end, limits_of, submit_once
from tasks.release.gate import compare
from tasks.release.statistics import wilson_interval

OUT = Path(".local/bench/curves.json")
Curves = dict[str, list[EvalReport]]


def train_side(settings: RetrainSettings, side: str) -> list[EvalReport]:
    """Train one side to its end; its evaluations by step."""
    job = side_job(settings, side, f"curve-{side.replace('_', '-')}-{datetime.now():%m%d-%H%M}")
    jobs = RayJobs(settings.cluster.jobs_address)
    submission_id = submit_once(
        jobs, job.run_name, entrypoint(settings.job, "bench.side", side, "curve", job.model_dump_json())
    )
    story = followed_to_its_end(jobs, submission_id, Collected(), limits_of(settings.job))
    return [story.evaluations[step] for step in sorted(story.evaluations)]


def comparison(curves: Curves) -> list[dict[str, Any]]:
    """One row for each step that ours and another side evaluated."""
    rows = []
    for side in curves.keys() - {"ours"}:
        theirs = {report.step: report for report in curves[side]}
        for report in curves["ours"]:
            if report.step in theirs:
                found = compare(report, theirs[report.step])
                rows.append(
                    {
                        "side": side,
                        "step": report.step,
                        "ours": report.num_solved,
                        "theirs": theirs[report.step].num_solved,
                        "only_ours": found.wins,
                        "only_theirs": found.losses,
                        "p_value": round(found.p_value, 4),
                    }
                )
    return rows


def drawn(curves: Mapping[str, list[EvalReport]]) -> Figure:
    """Mazes solved over steps, both sides with 95% Wilson intervals."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for side, reports in curves.items():
        steps, num_mazes = [report.step for report in reports], reports[0].num_mazes
        bounds = [wilson_interval(report.num_solved, num_mazes) for report in reports]
        axes.fill_between(
            steps, [low * num_mazes for low, _ in bounds], [high * num_mazes for _, high in bounds], alpha=0.15, lw=0
        )
        axes.plot(steps, [report.num_solved for report in reports], marker="o", label=side)
        axes.set(ylim=(0, num_mazes * 1.05), ylabel=f"mazes solved, of {num_mazes}")
    axes.set(xlabel="GRPO step", title="ours and stock SkyRL: same seed, same settings")
    axes.legend(loc="lower right")
    return figure


def main(argv: list[str]) -> None:
    options = dict(argument.split("=", 1) for argument in argv[1:])
    changes = {"max_steps": int(options["steps"])} if "steps" in options else {}
    settings: RetrainSettings = load_settings("retrain/local", changes)
    known = json.loads(OUT.read_text())["curves"] if OUT.exists() else {}
    curves = {side: [EvalReport.model_validate(report) for report in reports] for side, reports in known.items()}
    for side in options.get("sides", "stock_closing_once,ours").split(","):
        curves[side] = train_side(settings, side)
        rows = comparison(curves) if "ours" in curves else []
        document = {"rows": rows, "curves": {name: [r.model_dump() for r in found] for name, found in curves.items()}}
        OUT.parent.mkdir(parents=True, exist_ok=True)
        OUT.write_text(json.dumps(document) + "\n")
        print(json.dumps(rows, indent=1))
    save_png(drawn(curves), OUT.with_suffix(".png"))


if __name__ == "__main__":
    main(sys.argv)
