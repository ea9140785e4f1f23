"""The text protocol: parsing never raises, and says what it did not understand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.maze.grid import Direction
from rl.maze.prompts import Move, Stop, Unparsable, action_text, opening_message, parse_reply, task_prompt

modes = st.sampled_from(["strict", "tolerant"])


@given(st.text(), modes)
def test_parsing_never_raises_on_any_text(text: str, mode: str) -> None:
    assert isinstance(parse_reply(text, mode), Move | Stop | Unparsable)  # type: ignore[arg-type]


@given(st.text(alphabet="(),'\"movestp0123456789 \n[]{}*-"), modes)
def test_parsing_never_raises_on_text_that_looks_like_a_tuple(text: str, mode: str) -> None:
    assert isinstance(parse_reply(text, mode), Move | Stop | Unparsable)  # type: ignore[arg-type]


def test_parsing_survives_nesting_too_deep_for_python() -> None:
    assert isinstance(parse_reply("(" * 100_000, "strict"), Unparsable)


@pytest.mark.parametrize("mode", ["strict", "tolerant"])
@pytest.mark.parametrize("action", [*map(Move, Direction), Stop()])
def test_what_the_oracle_writes_is_read_back(action: Move | Stop, mode: str) -> None:
    assert parse_reply(action_text(action), mode) == action  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reply", "strict", "tolerant"),
    [
        (" ('move', 3)\n", Move(Direction.DOWN), Move(Direction.DOWN)),
        ('("move", 1)', Move(Direction.UP), Move(Direction.UP)),
        ("I go up: ('move', 1).", None, Move(Direction.UP)),
        ("(move, 2)", None, Move(Direction.LEFT)),
        ("```('stop', 'stop')```", None, Stop()),
        ("('move', 0) then ('move', 3)", None, Move(Direction.RIGHT)),
        ("('move', 4)", None, None),
        ("('move', -1)", None, None),
        ("('move', True)", None, None),
        ("('move', 1.0)", None, None),
        ("('stop', 3)", None, None),
        ("('jump', 1)", None, None),
        ("['move', 1]", None, None),
        ("('move', 1, 2)", None, None),
        ("", None, None),
    ],
)
def test_strict_wants_one_tuple_and_tolerant_the_first_one_found(
    reply: str, strict: Move | Stop | None, tolerant: Move | Stop | None
) -> None:
    for mode, wanted in (("strict", strict), ("tolerant", tolerant)):
        got = parse_reply(reply, mode)  # type: ignore[arg-type]
        assert isinstance(got, Unparsable) if wanted is None else got == wanted, mode


def test_the_opening_message_names_size_actions_and_format() -> None:
    text = opening_message(task_prompt(7, 9))
    assert text.startswith("You are navigating a 7x9 maze.")
    assert "0=right, 1=up, 2=left, 3=down" in text
    assert text.endswith("Do not wrap the action in backticks, code blocks, or other formatting.")
