"""What became of each maze at the endpoint, for MLflow: tables with a row a maze, the candidate's record, figures."""

from __future__ import annotations

from rl.maze.score import EvalReport
from tasks.clients.mlflow_evidence import JUDGED
from tasks.records import Evaluations, ServedRun
from tasks.release.statistics import wilson_interval
from tasks.run import RunContext
from tasks.training.curves import EPISODES, episode_rows

SERVED = "evaluations/served.json"
"""The evaluation mazes through the endpoint, among the run's artifacts."""


def keep_outcomes(context: RunContext, outcome: ServedRun) -> None:
    """Every maze that was played through the endpoint."""
    played = outcome.played
    context.run.text(outcome.evaluation.model_dump_json(indent=1), SERVED)
    context.run.text(played.candidate.model_dump_json(indent=1), JUDGED)
    context.run.table(episode_rows(outcome.evaluation), f"{EPISODES}/served.json")
    for name, report in players(played).items():
        context.run.table(episode_rows(report), f"{EPISODES}/judge_{name}.json")


def players(played: Evaluations) -> dict[str, EvalReport]:
    """Who played the judge set."""
    everybody = {"candidate": played.candidate, "base": played.base, "champion": played.champion}
    return {name: report for name, report in everybody.items() if report}


def judge_metrics(outcome: ServedRun) -> dict[str, float]:
    """What decided, as figures that runs are sorted by."""
    candidate, against = outcome.played.candidate, outcome.verdict.against_base
    low, high = wilson_interval(candidate.num_solved, candidate.num_mazes)
    gain_low, gain_high = against.interval
    figures = {
        "judge/solve_rate": candidate.solve_rate,
        "judge/solve_rate_low": low,
        "judge/solve_rate_high": high,
        "judge/gain": against.difference,
        "judge/gain_low": gain_low,
        "judge/gain_high": gain_high,
        "judge/p_value": against.p_value,
    }
    return {
        **{f"judge/{name}_solved": report.num_solved for name, report in players(outcome.played).items()},
        "judge/num_mazes": candidate.num_mazes,
        "judge/ceiling": outcome.played.judge_set.ceiling,
        # MLflow's tables show all digits that a number has.
        **{name: float(f"{value:.4g}") for name, value in figures.items()},
    }
