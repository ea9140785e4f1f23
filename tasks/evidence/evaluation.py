"""What an evaluation by itself leaves for its reader: figures, a row a maze, the whole record, and its replays."""

from __future__ import annotations

from rl.maze.score import EvalReport
from tasks.evidence.exhibits import about_alone
from tasks.evidence.replays import Player, replay_page
from tasks.evidence.report import artifact_url, page_url
from tasks.run import RunContext
from tasks.training.curves import EPISODES, episode_rows, evaluation_curves

RECORD, REPLAYS = "evaluation.json", "replays/replays.html"


def keep_evaluation(context: RunContext, report: EvalReport) -> None:
    """All of it in MLflow, the replays linked from the flow run's page."""
    context.run.metrics(report.step, evaluation_curves(report))
    context.run.text(report.model_dump_json(indent=1), RECORD)
    context.run.table(episode_rows(report), f"{EPISODES}/evaluation.json")
    context.run.text(replay_page(context.run_name, about_alone(report), [Player(report.model_id, report)]), REPLAYS)
    links = f"[in MLflow]({page_url(context, REPLAYS)}), [as a file]({artifact_url(context, REPLAYS)})"
    solved = f"{report.model_id} solves {report.num_solved} of {report.num_mazes} mazes."
    context.page.markdown("report", f"{solved} Replays, turn by turn: {links}.\n", "Result of the evaluation")
