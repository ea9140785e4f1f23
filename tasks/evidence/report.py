"""Stage: what a run leaves behind - the report in JSON, the curve and the maze replays, here and in MLflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.evidence.pictures import replay_gallery, save_png, solve_rate_curve
from tasks.evidence.settings import ReportSettings
from tasks.jobs.news import training_log
from tasks.records import BestStep, ServedRun
from tasks.run import RunContext
from tasks.stage import stage


@stage
def write_report(context: RunContext, settings: ReportSettings, best: BestStep, served: ServedRun) -> dict[str, Any]:
    """Write ``<run_name>.json``, ``latest.json`` and the pictures; returns the report."""
    report = make_report(context, settings.profile, best, served)
    folder = Path(settings.reports_dir)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=1) + "\n"
    for name in (context.run_name, "latest"):
        (folder / f"{name}.json").write_text(text)
    context.run.text(text, "report.json")
    context.run.metrics(best.best.step, summary_metrics(best))
    for picture in draw(settings, best):
        context.run.file(picture, "pictures")
        server = context.run.url.partition("/#/")[0]
        url = f"{server}/get-artifact?path=pictures/{picture.name}&run_uuid={context.run.run_id}"
        context.page.picture(picture.stem.replace("_", "-"), url)
    context.page.markdown("report", as_markdown(report), "Result of the run")
    return report


def draw(settings: ReportSettings, best: BestStep) -> list[Path]:
    """The solve rate over the steps, and the mazes that base and best step play differently."""
    run, mazes = best.run, best.run.mazes
    folder = Path(settings.reports_dir) / run.run_name
    curve = solve_rate_curve(run.evaluations, mazes.ceiling, best.best.step, f"{run.run_name} ({settings.profile})")
    gallery = replay_gallery(best.base, best.best, mazes.height, mazes.width)
    return [save_png(curve, folder / "solve_rate.png"), save_png(gallery, folder / "replays.png")]


def make_report(context: RunContext, profile: str, best: BestStep, served: ServedRun) -> dict[str, Any]:
    """The report's document."""
    run, mazes = best.run, best.run.mazes
    return {
        "run_name": run.run_name,
        "profile": profile,
        "eval_set": {"sha256": mazes.eval_sha256, "num_mazes": mazes.num_eval_mazes, "ceiling": mazes.ceiling},
        "evals": [
            {
                "step": report.step,
                "solved": report.num_solved,
                "unparsable_replies": report.unparsable_replies,
                "mean_turns": round(report.mean_turns, 3),
            }
            for report in run.evaluations
        ],
        "base": {"solved": best.base.num_solved},
        "best": {"step": best.best.step, "solved": best.best.num_solved, "export_path": best.export.path},
        "steps": run.last_step,
        "mlflow": {
            "parent_run_id": context.run.run_id,
            "child_run_id": training_log(context.run, run.attempt).run_id,
            "url": context.run.url,
        },
        **served_part(served),
        "timings_s": {stage: round(seconds, 1) for stage, seconds in context.stages.seconds().items()},
        "wall_s": round(context.wall_s, 1),
    }


def served_part(served: ServedRun) -> dict[str, Any]:
    """Adapter, proof, verdict and addresses."""
    adapter, certificate, verdict = served.adapter, served.certificate, served.verdict
    return {
        "adapter": {"name": adapter.name, "uri": adapter.uri, "sha256": adapter.sha256},
        "proof": certificate.model_dump(exclude={"adapter"}) | {"holds": certificate.holds},
        "gate": {
            "decision": verdict.decision,
            "reason": verdict.reason,
            "wins": verdict.against_base.wins,
            "losses": verdict.against_base.losses,
            "champion": served.change.champion if served.change else None,
        },
        "served": {
            "url": served.endpoint.url,
            "base_model_id": served.endpoint.base_model_id,
            "adapter_model_id": adapter.model_id,
            "away_s": round(served.away_s, 1),
        },
    }


def summary_metrics(best: BestStep) -> dict[str, float]:
    """What people compare runs by."""
    return {
        "base/solved": best.base.num_solved,
        "best/solved": best.best.num_solved,
        "best/step": best.best.step,
        "best/solve_rate": best.best.solve_rate,
        "eval_set/ceiling": best.run.mazes.ceiling,
    }


def as_markdown(report: Mapping[str, Any]) -> str:
    """The result as a short table, for the Prefect page and the terminal."""
    best, eval_set = report["best"], report["eval_set"]
    head = (
        f"**{report['run_name']}**: base {report['base']['solved']}, best {best['solved']} of "
        f"{eval_set['num_mazes']} mazes (step {best['step']}; ceiling {eval_set['ceiling']})\n\n"
    )
    rows = [
        f"| {row['step']} | {row['solved']} | {row['mean_turns']:.2f} | {row['unparsable_replies']} |"
        for row in report["evals"]
    ]
    table = "\n".join(["| step | solved | mean turns | unparsable replies |", "|---:|---:|---:|---:|", *rows])
    proof, gate, adapter = report["proof"], report["gate"], report["adapter"]
    proven = "holds" if proof["holds"] else "fails: " + "; ".join(proof["failures"])
    return (
        f"{head}{table}\n\n"
        f"Adapter `{adapter['name']}` at {adapter['uri']}: {proof['endpoint_solved']} of {eval_set['num_mazes']} mazes "
        f"through the endpoint ({proof['training_solved']} in training). Proof {proven}. "
        f"Gate: {gate['decision']}, {gate['reason']}.\n{_away(report['served'].get('away_s', 0.0))}"
    )


def _away(away_s: float) -> str:
    return f"\nThe endpoint was away for {away_s / 3600:.1f} h while the run trained.\n" if away_s else ""


def curl_lines(report: Mapping[str, Any]) -> str:
    """Commands that ask the base and the adapter, as they are."""
    served = report["served"]
    question = "Which actions are there?"

    def line(model: str) -> str:
        body = json.dumps({"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": question}]})
        return f"curl -s {served['url']}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'"

    return "\n".join(line(served[name]) for name in ("base_model_id", "adapter_model_id"))
