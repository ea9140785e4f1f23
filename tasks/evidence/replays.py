"""Replays of a run: one HTML page that plays every maze turn by turn, without a server or anything from the net. Pure.

The page holds walls, cells and replies as JSON and draws the pictures itself, in the environment's colours and at its
size. Replies are the model's: they reach the page as text, never as markup, and its policy lets no script in but its
own.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl.maze.grid import Maze, turns_needed
from rl.maze.pictures import AGENT, FLOOR, TARGET, WALL
from rl.maze.score import EvalReport, Outcome
from rl.maze.sources import maze_for
from rl.maze.walks import Behaviour, behaviour, ending_of, turns_of

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
    document = json.dumps(page_data(run_name, about, players), separators=(",", ":"))
    here = Path(__file__)
    style, script = (here.with_name(f"replay_page.{kind}").read_text() for kind in ("css", "js"))
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; base-uri 'none'; "
        "form-action 'none'"
    )
    parts = {
        "__POLICY__": policy,
        "__STYLE__": style,
        # No reply can end the element: JSON may spell the sign in another way.
        "__DATA__": document.replace("<", "\\u003c"),
        "__SCRIPT__": script,
    }
    page = here.with_name("replay_page.html").read_text()
    pieces = []
    for mark, text in parts.items():
        before, page = page.split(mark, 1)
        pieces += [before, text]
    return "".join([*pieces, page])


def page_data(run_name: str, about: str, players: Sequence[Player]) -> dict[str, Any]:
    """What the page shows."""
    rules, size = players[0].report.rules, players[0].report.rules.maze
    seeds = [outcome.seed for outcome in players[0].report.outcomes]
    played = [(player.report.rules.maze, [outcome.seed for outcome in player.report.outcomes]) for player in players]
    if any(other != (size, seeds) for other in played):
        names = ", ".join(player.name for player in players)
        raise ValueError(f"{names} did not play the same mazes; show players of one evaluation set on a page")
    mazes = mazes_of(players[0].report)
    return {
        "run_name": run_name,
        "about": about,
        "cell_px": size.cell_px,
        "max_turns": rules.max_turns,
        "colours": {
            name: "#" + bytes(colour).hex()
            for name, colour in (("floor", FLOOR), ("wall", WALL), ("target", TARGET), ("agent", AGENT))
        },
        "mazes": [
            {
                "seed": seed,
                "walls": maze.walls,
                "start": maze.start,
                "target": maze.target,
                "turns_needed": turns_needed(maze),
            }
            for seed, maze in zip(seeds, mazes, strict=True)
        ],
        "players": [
            {
                "name": player.name,
                "model_id": player.report.model_id,
                "walks": [
                    _walk(maze, outcome, player.report.rules.max_turns)
                    for maze, outcome in zip(mazes, player.report.outcomes, strict=True)
                ],
            }
            for player in players
        ],
        "behaviour": {
            "columns": list(BEHAVIOUR_COLUMNS.values()),
            "rows": [behaviour_row(player.name, behaviour_of(player.report)) for player in players],
        },
    }


def behaviour_row(name: str, did: Behaviour) -> list[str | int]:
    """One line of the table: who, then the counts."""
    return [name, *(getattr(did, count) for count in BEHAVIOUR_COLUMNS)]


def _walk(maze: Maze, outcome: Outcome, max_turns: int) -> dict[str, Any]:
    turns = turns_of(maze, outcome)
    return {
        "letters": outcome.actions,
        "ending": ending_of(outcome, max_turns),
        "replies": [turn.reply for turn in turns],
        "feedback": [turn.feedback for turn in turns],
        "marks": ["back" if turn.turned_back else "bump" if turn.hit_wall else "" for turn in turns],
    }


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
