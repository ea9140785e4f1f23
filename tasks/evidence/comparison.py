"""What evaluations say beyond the count of solved mazes, for the report. Pure: records in, documents out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rl.maze.grid import turns_needed
from rl.maze.score import EvalReport
from tasks.evidence.replays import BEHAVIOUR_COLUMNS, behaviour_of, mazes_of
from tasks.records import Comparison, Evaluations
from tasks.release.statistics import path_efficiency, solved_by_length, wilson_interval


def evaluation_part(report: EvalReport) -> dict[str, Any]:
    """One evaluation."""
    return {
        "step": report.step,
        "solved": report.num_solved,
        "interval": [round(bound, 4) for bound in wilson_interval(report.num_solved, report.num_mazes)],
        "unparsable_replies": report.unparsable_replies,
        "mean_turns": round(report.mean_turns, 3),
        "behaviour": asdict(behaviour_of(report)),
    }


def difference_part(compared: Comparison) -> dict[str, float]:
    """By how much the candidate's solve rate is above the reference's, with Newcombe's interval."""
    low, high = compared.interval
    return {"value": round(compared.difference, 4), "low": round(low, 4), "high": round(high, 4)}


def judge_part(played: Evaluations) -> dict[str, Any]:
    """What decided: the judge set and who solved how many of it."""
    players = {"candidate": played.candidate, "base": played.base, "champion": played.champion}
    return {
        "name": played.judge_set.name,
        "sha256": played.judge_set.sha256,
        "num_mazes": played.candidate.num_mazes,
        "ceiling": played.judge_set.ceiling,
        "solved": {name: report.num_solved for name, report in players.items() if report},
        "recalled": list(played.recalled),
    }


def walking_part(report: EvalReport) -> dict[str, Any]:
    """How straight the solved mazes were walked, and how many of each length are solved."""
    needed = [turns_needed(maze) for maze in mazes_of(report)]
    played = list(zip(report.outcomes, needed, strict=True))
    solved = [(outcome.num_turns, turns) for outcome, turns in played if outcome.solved]
    efficiency = path_efficiency([taken for taken, _ in solved], [turns for _, turns in solved])
    by_length = solved_by_length([outcome.solved for outcome in report.outcomes], needed)
    return {
        "path_efficiency": None if efficiency is None else round(efficiency, 4),
        "solved_by_turns_needed": {
            str(length): [share.num_solved, share.num_mazes] for length, share in by_length.items()
        },
    }


def behaviour_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Markdown: what the model did at each evaluated step."""
    lines = [
        "| step | solved | 95% interval | mean turns | " + " | ".join(list(BEHAVIOUR_COLUMNS.values())[1:]) + " |",
        "|---:" * (3 + len(BEHAVIOUR_COLUMNS)) + "|",
    ]
    for row in rows:
        low, high = row["interval"]
        counts = " | ".join(str(row["behaviour"][count]) for count in list(BEHAVIOUR_COLUMNS)[1:])
        lines.append(
            f"| {row['step']} | {row['solved']} | {low:.0%} to {high:.0%} | {row['mean_turns']:.2f} | {counts} |"
        )
    return "\n".join(lines)
