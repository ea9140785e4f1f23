"""Stage: what a run leaves behind - the report in JSON, the curve and the maze replays, here and in MLflow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.evidence.comparison import behaviour_table, difference_part, evaluation_part, judge_part, walking_part
from tasks.evidence.exhibits import Exhibits, make_exhibits
from tasks.evidence.outcomes import judge_metrics, keep_outcomes
from tasks.evidence.settings import ReportSettings
from tasks.jobs.news import training_log
from tasks.records import BestStep, ServedRun
from tasks.run import RunContext
from tasks.stage import stage


@stage
def write_report(context: RunContext, settings: ReportSettings, best: BestStep, served: ServedRun) -> dict[str, Any]:
    """Write ``<run_name>.json``, ``latest.json`` and the pictures; returns the report."""
    report = make_report(context, settings, best, served)
    folder = Path(settings.reports_dir)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=1) + "\n"
    for name in (context.run_name, "latest"):
        (folder / f"{name}.json").write_text(text)
    context.run.text(text, "report.json")
    context.run.metrics(best.best.step, summary_metrics(best) | judge_metrics(served))
    keep_outcomes(context, served)
    exhibits = make_exhibits(folder / context.run_name, settings.profile, best, served)
    show(context, exhibits)
    links = replay_links(context, exhibits)
    context.page.markdown("report", f"{as_markdown(report)}\n{links}", "Result of the run")
    return report


def show(context: RunContext, exhibits: Exhibits) -> None:
    """Hand the files to MLflow, and what can be seen at a glance to the run's page."""
    for key, picture in exhibits.pictures.items():
        context.run.file(picture, "pictures")
        context.page.picture(key, artifact_url(context, f"pictures/{picture.name}"))
    for walk in exhibits.walks:
        context.run.file(walk, "replays")
    for page in exhibits.pages.values():
        context.run.file(page, "replays")


def artifact_url(context: RunContext, artifact_path: str) -> str:
    """Where MLflow gives out a file of the run."""
    server = context.run.url.partition("/#/")[0]
    return f"{server}/get-artifact?path={artifact_path}&run_uuid={context.run.run_id}"


def page_url(context: RunContext, artifact_path: str) -> str:
    """Where MLflow's pages show a file of the run."""
    page, mark, query = context.run.url.partition("?")
    return f"{page}/artifacts/{artifact_path}{mark}{query}"


def replay_links(context: RunContext, exhibits: Exhibits) -> str:
    """Markdown: where what was played can be played again."""
    lines = ["Replays, turn by turn, in MLflow or as a file that any browser opens without a server:", ""]
    for name, page in exhibits.pages.items():
        path = f"replays/{page.name}"
        lines.append(f"- {name}: [in MLflow]({page_url(context, path)}), [as a file]({artifact_url(context, path)})")
    return "\n".join([*lines, ""])


def make_report(context: RunContext, settings: ReportSettings, best: BestStep, served: ServedRun) -> dict[str, Any]:
    """The report's document."""
    run, mazes = best.run, best.run.mazes
    return {
        "run_name": run.run_name,
        "profile": settings.profile,
        "note": settings.note,
        "eval_set": {"sha256": mazes.eval_sha256, "num_mazes": mazes.num_eval_mazes, "ceiling": mazes.ceiling},
        "rules": best.best.rules.model_dump(mode="json"),
        "evals": [evaluation_part(report) for report in run.evaluations],
        "base": {"solved": best.base.num_solved},
        "best": {"step": best.best.step, "solved": best.best.num_solved, "export_path": best.export.path},
        "steps": run.last_step,
        "died": [died.model_dump(exclude={"held_step"}) for died in run.died],
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
        "judge": judge_part(served.played),
        "gate": {
            "decision": verdict.decision,
            "reason": verdict.reason,
            "wins": verdict.against_base.wins,
            "losses": verdict.against_base.losses,
            "difference": difference_part(verdict.against_base),
            "p_value": verdict.against_base.p_value,
            "visible_gain": None if verdict.visible_gain is None else round(verdict.visible_gain, 4),
            "champion": served.change.champion if served.change else None,
        },
        "walks": {"base": walking_part(served.played.base), "served": walking_part(served.played.candidate)},
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
    head += f"{report['note']}\n\n" if report.get("note") else ""
    table = behaviour_table(report["evals"])
    proof, gate, adapter = report["proof"], report["gate"], report["adapter"]
    proven = "holds" if proof["holds"] else "fails: " + "; ".join(proof["failures"])
    return (
        f"{head}{table}\n\n"
        f"Adapter `{adapter['name']}` at {adapter['uri']}: {proof['endpoint_solved']} of {eval_set['num_mazes']} mazes "
        f"through the endpoint ({proof['training_solved']} in training). Proof {proven}. "
        f"\n\n{judged(report['judge'])} Gate: {gate['decision']}, {gate['reason']}.\n"
        f"{_away(report['served'].get('away_s', 0.0))}{_died(report.get('died', []))}"
    )


def judged(judge: Mapping[str, Any]) -> str:
    """``Judge 182 of 256, base 121: mazes that chose no step.``"""
    solved = judge["solved"]
    others = "".join(f", {name} {solved[name]}" for name in ("base", "champion") if name in solved)
    again = f" ({', '.join(judge['recalled'])} recalled from an earlier attempt)" if judge["recalled"] else ""
    return f"Judge {solved['candidate']} of {judge['num_mazes']}{others}{again}: mazes that chose no step."


def in_one_line(report: Mapping[str, Any]) -> str:
    """``judge 91/128, +30 over base, promoted``: what the flow run's state says, by the mazes that decided."""
    judge, gate = report["judge"], report["gate"]
    solved, base = (judge["solved"][name] for name in ("candidate", "base"))
    end = "promoted" if gate["champion"] else f"not promoted ({gate['decision']})"
    return f"judge {solved}/{judge['num_mazes']}, {solved - base:+d} over base, {end}"


def _away(away_s: float) -> str:
    return f"\nThe endpoint was away for {away_s / 3600:.1f} h while the run trained.\n" if away_s else ""


def _died(jobs: Sequence[Mapping[str, Any]]) -> str:
    """Which jobs died while it was trained, and of what."""
    return "".join(f"\n{job['submission_id']} died at step {job['step']}: {job['cause']}\n" for job in jobs)


def curl_lines(report: Mapping[str, Any]) -> str:
    """Commands that ask the base and the adapter, as they are."""
    served = report["served"]
    question = "Which actions are there?"

    def line(model: str) -> str:
        body = json.dumps({"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": question}]})
        return f"curl -s {served['url']}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'"

    return "\n".join(line(served[name]) for name in ("base_model_id", "adapter_model_id"))
