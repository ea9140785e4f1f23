"""Trajectories written by hand, and the counts of what their players did; played ones, told again."""

from __future__ import annotations

import random

import pytest

from rl.maze.episode import Episode
from rl.maze.grid import Maze
from rl.maze.prompts import EXECUTED, HIT_WALL, Unparsable, parse_reply, unparsable_feedback
from rl.maze.score import EvalReport, Outcome
from rl.maze.walks import Behaviour, Ending, behaviour, cells_of, ending_of, turns_of
from rl.settings import MazeSettings
from tests.unit.samples import RULES

CORRIDOR = Maze(("#######", "#.....#", "#.###.#", "#.#...#", "#######"), (1, 1), (3, 3))
"""Right four times, down twice, left twice."""


def walked(actions: str, solved: bool = False) -> Outcome:
    return Outcome(seed=0, solved=solved, actions=actions, unparsable_replies=actions.count("?"), said=())


@pytest.mark.parametrize(
    ("actions", "turned_back", "hit_walls", "unparsable"),
    [
        ("RRRRDDLLS", 0, 0, 0),
        ("RLRLR", 4, 0, 0),
        ("RRUL", 1, 1, 0),
        ("R?L", 1, 0, 1),
        ("UULL", 0, 4, 0),
        ("RRDDLL", 1, 2, 0),
        ("DU", 1, 0, 0),
        ("S", 0, 0, 0),
        ("", 0, 0, 0),
    ],
)
def test_turns_back_bumps_and_unparsable_replies_are_counted(
    actions: str, turned_back: int, hit_walls: int, unparsable: int
) -> None:
    found = behaviour([CORRIDOR], [walked(actions)], 15)
    assert (found.turned_back, found.hit_walls, found.unparsable_replies) == (turned_back, hit_walls, unparsable)


@pytest.mark.parametrize(
    ("outcome", "ending"),
    [
        (walked("RRRRDDLLS", solved=True), Ending.SOLVED),
        (walked("RRS"), Ending.WRONG_STOP),
        (walked("S"), Ending.WRONG_STOP),
        (walked("RL" * 5), Ending.OUT_OF_TURNS),
        (walked("R"), Ending.CUT_OFF),
        (walked(""), Ending.CUT_OFF),
    ],
)
def test_a_maze_ends_in_one_of_four_ways(outcome: Outcome, ending: Ending) -> None:
    assert ending_of(outcome, 10) is ending


def test_an_evaluation_is_the_sum_of_its_mazes() -> None:
    outcomes = [walked("RRRRDDLLS", solved=True), walked("RRS"), walked("RLRLR"), walked("U?")]
    assert behaviour([CORRIDOR] * 4, outcomes, 5) == Behaviour(
        turned_back=4, hit_walls=1, unparsable_replies=1, solved=1, wrong_stops=1, out_of_turns=1, cut_off=1
    )


REPLIES = ("('move', 0)", "('move', 1)", "('move', 2)", "('move', 3)", "I go (move, 3) <b>now</b>", "hm", "('move', 7)")


@pytest.mark.parametrize("parsing", ["tolerant", "strict"])
def test_a_record_tells_every_turn_as_it_was_played(parsing: str) -> None:
    draw = random.Random(3)
    for seed in range(12):
        episode = Episode(seed, MazeSettings(height=7, width=9), parsing, 12)  # type: ignore[arg-type]
        seen, replies, answers = episode.start(), [], []
        while not seen.done:
            replies.append(draw.choice(REPLIES))
            seen = episode.step(replies[-1])
            answers.append(seen.text)
        outcome = Outcome.model_validate_json(episode.outcome().model_dump_json())
        maze = episode._env.maze
        turns = turns_of(maze, outcome)
        assert [turn.reply for turn in turns] == replies
        assert [turn.feedback for turn in turns] == answers
        assert [turn.hit_wall for turn in turns] == [answer == HIT_WALL for answer in answers]
        assert cells_of(maze, outcome)[-1] == episode._env._agent
        episode.close()


def test_what_nobody_kept_is_not_made_up() -> None:
    old = Outcome.model_validate({"seed": 0, "solved": False, "actions": "R?", "unparsable_replies": 1})
    assert [(turn.reply, turn.feedback) for turn in turns_of(CORRIDOR, old)] == [(None, EXECUTED), (None, "")]


def test_a_reply_that_is_no_text_is_kept_as_far_as_it_is() -> None:
    episode = Episode(0, MazeSettings(height=7, width=9), "tolerant", 5)
    episode.start()
    episode.step("half \ud83d of a pair")
    said = Outcome.model_validate_json(episode.outcome().model_dump_json()).said
    assert said is not None
    (noted,) = said
    unread = parse_reply("half", "tolerant")
    assert isinstance(unread, Unparsable)
    assert (noted.reply, noted.feedback) == ("half ? of a pair", unparsable_feedback(unread))


def test_many_words_are_left_out_from_some_turn_on_and_counted() -> None:
    said = [{"turn": turn, "reply": "x" * 100, "feedback": "what?"} for turn in range(5)]
    talker = Outcome.model_validate(
        {"seed": 0, "solved": False, "actions": "?" * 5, "unparsable_replies": 5, "said": said}
    )
    silent = Outcome(seed=1, solved=False, actions="S", unparsable_replies=0)
    report = EvalReport(step=1, rules=RULES, model_id="m", outcomes=(talker, silent))
    shorter = report.with_fewer_words(250)
    assert [one.num_left_out for one in shorter.outcomes[0].said or ()] == [0, 0, 100, 100, 100]
    assert [turn.reply for turn in turns_of(CORRIDOR, shorter.outcomes[0])] == ["x" * 100] * 2 + [None] * 3
    assert shorter.outcomes[1] == silent
    assert report.with_fewer_words(500) == report
