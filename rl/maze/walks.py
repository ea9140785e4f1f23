"""An outcome played again: where the agent stood, what it did there, and how it ended. Pure.

The maze follows from its seed, the cells from the letters, and what was said from the letters and what was noted
beside them (Said in score.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rl.maze.grid import Cell, Direction, Maze, moved
from rl.maze.prompts import EXECUTED, HIT_WALL, Move, Stop, action_text
from rl.maze.score import MOVE_LETTERS, Outcome


class Ending(StrEnum):
    """How a maze was left."""

    SOLVED = "solved"
    WRONG_STOP = "stopped elsewhere"
    OUT_OF_TURNS = "ran out of turns"
    CUT_OFF = "cut off"
    """Neither a stop nor the last turn: the conversation outgrew the model, or the reply could not be used."""


@dataclass(frozen=True)
class Turn:
    """One reply, and what became of it."""

    letter: str
    """See MOVE_LETTERS; ``S`` is the stop and ``?`` a reply without an action."""
    before: Cell
    after: Cell
    reply: str | None
    """None where nobody kept it."""
    feedback: str
    """What the environment said; empty where nobody kept it."""
    hit_wall: bool
    turned_back: bool
    """The move undid the one before, bumps and replies without an action between them aside."""


def turns_of(maze: Maze, outcome: Outcome) -> tuple[Turn, ...]:
    """The walk, turn by turn."""
    said = {one.turn: one for one in outcome.said or ()}
    here, last, turns = maze.start, None, []
    for number, letter in enumerate(outcome.actions):
        direction = Direction(MOVE_LETTERS.index(letter)) if letter in MOVE_LETTERS else None
        step = moved(here, direction) if direction is not None else here
        there = step if maze.is_free(step) else here
        hit_wall = direction is not None and there == here
        turned_back = there != here and last is not None and direction == last.opposite
        noted = said.get(number)
        reply = noted.reply if noted else None
        if reply is None and outcome.said is not None and letter != "?" and not (noted and noted.num_left_out):
            reply = action_text(Stop() if direction is None else Move(direction))
        usual = HIT_WALL if hit_wall else "" if letter == "?" else EXECUTED
        feedback = (noted.feedback if noted else None) or usual
        turns.append(Turn(letter, here, there, reply, feedback, hit_wall, turned_back))
        here, last = there, direction if there != here else last
    return tuple(turns)


def cells_of(maze: Maze, outcome: Outcome) -> list[Cell]:
    """The agent's cell before the first and after every turn."""
    return [maze.start, *(turn.after for turn in turns_of(maze, outcome))]


def ending_of(outcome: Outcome, max_turns: int) -> Ending:
    """How the maze was left, under this limit."""
    if outcome.solved:
        return Ending.SOLVED
    if outcome.actions.endswith("S"):
        return Ending.WRONG_STOP
    return Ending.OUT_OF_TURNS if outcome.num_turns >= max_turns else Ending.CUT_OFF


@dataclass(frozen=True)
class Behaviour:
    """What a player did over a whole evaluation, in counts."""

    turned_back: int
    hit_walls: int
    unparsable_replies: int
    """Three counts of turns; the rest are mazes."""
    solved: int
    wrong_stops: int
    out_of_turns: int
    cut_off: int


def behaviour(mazes: Sequence[Maze], outcomes: Iterable[Outcome], max_turns: int) -> Behaviour:
    """Counts over all mazes, which come in the order of the outcomes."""
    played = list(zip(mazes, outcomes, strict=True))
    turns = [turn for maze, outcome in played for turn in turns_of(maze, outcome)]
    endings = [ending_of(outcome, max_turns) for _, outcome in played]
    return Behaviour(
        turned_back=sum(turn.turned_back for turn in turns),
        hit_walls=sum(turn.hit_wall for turn in turns),
        unparsable_replies=sum(turn.letter == "?" for turn in turns),
        solved=endings.count(Ending.SOLVED),
        wrong_stops=endings.count(Ending.WRONG_STOP),
        out_of_turns=endings.count(Ending.OUT_OF_TURNS),
        cut_off=endings.count(Ending.CUT_OFF),
    )
