"""Pages that play walks turn by turn, without a server or anything from the net: what they have in common. Pure.

A page holds walls, cells and replies as JSON and draws the pictures itself, in the environment's colours and at its
size. Replies are the model's: they reach the page as text, never as markup, and its policy lets no script in but its
own.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl.maze.grid import Maze, turns_needed
from rl.maze.pictures import AGENT, FLOOR, TARGET, WALL
from rl.maze.score import Outcome
from rl.maze.walks import ending_of, turns_of

HERE = Path(__file__).parent


def walk_page(kind: str, data: Mapping[str, Any]) -> str:
    """The page of ``<kind>.html`` and ``<kind>.js`` over what ``data`` holds; walk_player.* is in each of them."""
    document = json.dumps(data, separators=(",", ":"))
    style, player = _file("walk_player.css"), _file("walk_player.js")
    script = player + _file(f"{kind}.js")
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; base-uri 'none'; "
        "form-action 'none'"
    )
    parts = {
        "__POLICY__": policy,
        "__STYLE__": style,
        "__PLAYER__": _file("walk_player.html"),
        # No reply can end the element: JSON may spell the sign in another way.
        "__DATA__": document.replace("<", "\\u003c"),
        "__SCRIPT__": script,
    }
    page, pieces = _file(f"{kind}.html"), []
    for mark, text in parts.items():
        before, page = page.split(mark, 1)
        pieces += [before, text]
    return "".join([*pieces, page])


@dataclass
class Texts:
    """Words of many turns, each of them once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str | None) -> int | None:
        """Where the page finds it again."""
        return None if text is None else self.numbers.setdefault(text, len(self.numbers))


def colours() -> dict[str, str]:
    """The environment's, as style sheets write them."""
    named = (("floor", FLOOR), ("wall", WALL), ("target", TARGET), ("agent", AGENT))
    return {name: "#" + bytes(colour).hex() for name, colour in named}


def maze_part(seed: int, maze: Maze) -> dict[str, Any]:
    """One maze."""
    return {
        "seed": seed,
        "walls": maze.walls,
        "start": maze.start,
        "target": maze.target,
        "turns_needed": turns_needed(maze),
    }


def walk_part(maze: Maze, outcome: Outcome, max_turns: int, texts: Texts) -> dict[str, Any]:
    """One walk through it."""
    turns = turns_of(maze, outcome)
    return {
        "letters": outcome.actions,
        "ending": ending_of(outcome, max_turns),
        "replies": [texts.number(turn.reply) for turn in turns],
        "feedback": [texts.number(turn.feedback) for turn in turns],
        "marks": ["back" if turn.turned_back else "bump" if turn.hit_wall else "" for turn in turns],
    }


def _file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
