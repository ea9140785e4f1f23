"""The text protocol of maze_2d: task prompt, replies, feedback. Pure.

The task prompt and the action tuples are VisGym's wire format to the letter, because a checkpoint
fine-tuned on VisGym has only ever seen that prompt (visgym/VisGym, gymnasium/envs/maze_2d; the
closing instruction is that of SkyRL's VisGym recipe; both Apache-2.0).
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Literal

from rl.maze.grid import Direction

ParsingMode = Literal["strict", "tolerant"]

EXECUTED = "Action executed successfully."
HIT_WALL = "Cannot move into a wall."

_TASK = """\
You are navigating a {height}x{width} maze. The maze consists of walls (gray) and paths (white). \
You are represented by a blue circle, and your goal is to reach the red target square.

Available actions:
1. 'move': Move in one of four directions. Format: `('move', direction)` where direction is an integer:
   - 0=right, 1=up, 2=left, 3=down
2. 'stop': End the navigation session. Format: `('stop', 'stop')`

Success: You succeed if you reach the red target square.

Please respond with exactly one action and its arguments in the specified format. For example:
- To move right: `('move', 0)`
- To move up: `('move', 1)`
- To move left: `('move', 2)`
- To move down: `('move', 3)`
- To stop: `('stop', 'stop')`"""

FORMAT_INSTRUCTION = """

IMPORTANT: Respond with exactly one action as a Python tuple, e.g. ('move', 0) or ('stop', 'stop'). \
Do not wrap the action in backticks, code blocks, or other formatting."""

_TUPLE = re.compile(r"""\(\s*['"]?(move|stop)['"]?\s*,\s*(?:['"]stop['"]|stop|[+-]?\d{1,9})\s*\)""")
_SPECIAL = re.compile(r"<\|([^<>|]*)\|>")


@dataclass(frozen=True)
class Move:
    """Walk one cell."""

    direction: Direction


@dataclass(frozen=True)
class Stop:
    """End the episode where the agent stands."""


@dataclass(frozen=True)
class Unparsable:
    """No action could be read; ``reason`` becomes the feedback. The turn is spent."""

    reason: str


Action = Move | Stop | Unparsable


def task_prompt(height: int, width: int) -> str:
    """VisGym's task description for a maze of ``height`` x ``width`` cells."""
    return _TASK.format(height=height, width=width)


def opening_message(task: str) -> str:
    """The text of the first user message: the environment's task, then how to answer."""
    return task + FORMAT_INSTRUCTION


def action_text(action: Move | Stop) -> str:
    """The tuple an agent writes for this action, for example ``('move', 0)``."""
    return f"('move', {int(action.direction)})" if isinstance(action, Move) else "('stop', 'stop')"


def spelled_out(text: str) -> str:
    """A reply as it may stand in the conversation: special tokens that it spells become plain text.

    A template or a tokenizer would take them for pictures or turns: ``<|image_pad|>`` in a reply moves the newest
    picture there.
    """
    return _SPECIAL.sub(r"< |\1| >", text)


def parse_reply(reply: str, mode: ParsingMode) -> Action:
    """Read one action from any text; never raises.

    ``strict`` wants the whole reply (white space aside) to be one tuple. ``tolerant`` takes the first
    tuple found anywhere in the reply, with or without quotes around the action name.
    """
    text = reply.strip()
    if mode == "tolerant":
        found = _TUPLE.search(text)
        if found is None:
            return Unparsable("No action tuple was found in the reply.")
        return _action(found.group(1), found.group(0).rsplit(",", 1)[1].strip(" )'\"\t\n"))
    try:
        parsed = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return Unparsable("The reply is not a Python tuple.")
    if not isinstance(parsed, tuple) or len(parsed) != 2 or isinstance(parsed[1], bool):
        return Unparsable("The reply is not a tuple of an action name and its argument.")
    return _action(parsed[0], parsed[1])


def _action(name: object, argument: object) -> Action:
    if name == "stop":
        return Stop() if argument == "stop" else Unparsable("The stop action takes 'stop' as its argument.")
    if name != "move":
        return Unparsable("The action name is not known; use 'move' or 'stop'.")
    if isinstance(argument, (int, str)) and str(argument) in ("0", "1", "2", "3"):
        return Move(Direction(int(argument)))
    return Unparsable("The direction is not one of 0, 1, 2, 3.")


def unparsable_feedback(action: Unparsable) -> str:
    """What the agent is told after a reply that held no action."""
    return f"{action.reason} Respond with exactly one action as a Python tuple."
