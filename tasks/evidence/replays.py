"""Replays of a run's evaluations: one HTML page where whoever played the same mazes is seen side by side. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rl.maze.grid import Maze
from rl.maze.score import EvalReport
from rl.maze.sources import maze_for
from rl.maze.walks import Behaviour, behaviour
from tasks.evidence.walk_pages import Texts, colours, maze_part, walk_page, walk_part

BEHAVIOUR_COLUMNS = {
    "solved": "solved",
    "wrong_stops": "stopped elsewhere",
    "out_of_turns": "out of turns",
    "cut_off": "cut off",
    "turned_back": "turned back",
    "hit_walls": "hit a wall",
    "unparsable_replies": "no action",
}
"""Count (Behaviour in rl/maze/walks.py) -> what it is called."""


@dataclass(frozen=True)
class Player:
    """Whoever played all mazes."""

    name: str
    """As people call it: base, step 16."""
    report: EvalReport


def mazes_of(report: EvalReport) -> list[Maze]:
    """The mazes of an evaluation, in its order."""
    return [maze_for(outcome.seed, report.rules.maze) for outcome in report.outcomes]


def behaviour_of(report: EvalReport) -> Behaviour:
    """What a player did, in counts."""
    return behaviour(mazes_of(report), report.outcomes, report.rules.max_turns)


def replay_page(run_name: str, about: str, players: Sequence[Player]) -> str:
    """The page; raises ValueError when the players did not play the same mazes in the same order."""
    return walk_page("replay_page", page_data(run_name, about, players))


def page_data(run_name: str, about: str, players: Sequence[Player]) -> dict[str, Any]:
    """What the page shows."""
    rules, size = players[0].report.rules, players[0].report.rules.maze
    seeds = [outcome.seed for outcome in players[0].report.outcomes]
    played = [(player.report.rules.maze, [outcome.seed for outcome in player.report.outcomes]) for player in players]
    if any(other != (size, seeds) for other in played):
        names = ", ".join(player.name for player in players)
        raise ValueError(f"{names} did not play the same mazes; show players of one evaluation set on a page")
    mazes, texts = mazes_of(players[0].report), Texts()
    return {
        "run_name": run_name,
        "about": about,
        "cell_px": size.cell_px,
        "max_turns": rules.max_turns,
        "colours": colours(),
        "mazes": [maze_part(seed, maze) for seed, maze in zip(seeds, mazes, strict=True)],
        "players": [
            {
                "name": player.name,
                "model_id": player.report.model_id,
                "walks": [
                    walk_part(maze, outcome, player.report.rules.max_turns, texts)
                    for maze, outcome in zip(mazes, player.report.outcomes, strict=True)
                ],
            }
            for player in players
        ],
        "texts": list(texts.numbers),
        "behaviour": {
            "columns": list(BEHAVIOUR_COLUMNS.values()),
            "rows": [behaviour_row(player.name, behaviour_of(player.report)) for player in players],
        },
    }


def behaviour_row(name: str, did: Behaviour) -> list[str | int]:
    """One line of the table: who, then the counts."""
    return [name, *(getattr(did, count) for count in BEHAVIOUR_COLUMNS)]
