"""`maze-retrain run` in a real terminal: a pseudo-terminal, a process of its own, the bytes it writes played back."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.unit.flows.terminal import Program, Terminal

pytestmark = pytest.mark.slow_s(45)
STORY = "tests.unit.flows.run_in_terminal"
FIRST = ["begins  run r", "follow  MLflow  http://127.0.0.1:5500/#/experiments/1/runs/1"]


def started(ending: str, notes: Path, width: int, height: int) -> Program:
    return Program([sys.executable, "-m", STORY, ending, str(notes)], width, height)


def at_step_two(program: Program) -> None:
    program.read_until(lambda lines: any("step 2 of 16" in line for line in lines), timeout_s=120)


def joined(program: Program) -> str:
    """What was written, whatever the width."""
    return "".join(program.terminal.lines)


@pytest.mark.parametrize(("width", "height"), [(100, 30), (80, 24)])
def test_a_good_run_leaves_its_lines_and_nothing_of_what_moved(width: int, height: int, tmp_path: Path) -> None:
    program = started("ends", tmp_path, width, height)
    assert program.ended(timeout_s=120) == 0
    lines = program.terminal.lines
    assert lines[:2] == FIRST
    assert lines[-2:] == ["done", ""]
    assert program.terminal.shows_cursor
    for lasting in ("eval    step 0 solves 33 of 64 mazes", "ok      run training "):
        assert sum(line.startswith(lasting) for line in lines) == 1
    assert "━" not in joined(program)
    assert "order training" not in joined(program), "it went well, at once, and has nothing to say"
    assert "the disk is nearly full" in joined(program)
    assert "Triton" not in joined(program), "every run without a GPU says so"
    moving = [[line for line in seen if "━" in line] for seen in program.seen]
    assert max(map(len, moving)) == 1, "the moving line is one line"
    assert any("step 2 of 16, 16 min 34 s left" in line for seen in moving for line in seen)


@pytest.mark.parametrize(("code", "name"), [(130, "Ctrl-C"), (143, "SIGTERM")])
def test_a_run_that_is_told_to_end_says_what_it_stops_and_that_it_has_stopped(
    code: int, name: str, tmp_path: Path
) -> None:
    program = started("waits", tmp_path, 80, 24)
    at_step_two(program)
    if name == "Ctrl-C":
        program.type("\x03")
    else:
        os.kill(program.pid, signal.SIGTERM)
    assert program.ended(timeout_s=60) == code
    text = joined(program)
    assert f"{name:<8}stopping run training and its Ray job r-train-1, then cleaning up" in text
    assert [line[:27].rstrip() for line in program.terminal.lines[-4:-1]] == [
        "stopped run training",
        "ok      clean up",
        "stopped r has stopped",
    ]
    assert "^C" not in text
    assert "Traceback" not in text


def test_told_twice_it_leaves_things_as_they_are_and_says_where_to_look(tmp_path: Path) -> None:
    program = started("clings", tmp_path, 80, 24)
    at_step_two(program)
    program.type("\x03")
    program.read_until(lambda lines: "clean up" in lines[-1], timeout_s=60)
    os.kill(program.pid, signal.SIGTERM)
    assert program.ended(timeout_s=60) == 130
    assert "SIGTERM not waiting: Ray job r-train-1 may still run; `maze-retrain cleanup r` shows what is" in joined(
        program
    )
    assert not (tmp_path / "cleaned").exists()


def test_a_run_whose_terminal_is_closed_cleans_up(tmp_path: Path) -> None:
    program = started("waits", tmp_path, 80, 24)
    at_step_two(program)
    program.hang_up()
    assert program.wait() != 0
    assert (tmp_path / "cleaned").exists()


def test_the_terminal_that_reads_back_wraps_goes_up_and_refuses_what_it_does_not_know() -> None:
    terminal = Terminal(4, 3)
    terminal.write("abcdef\r\nxy\r\x1b[1A\x1b[2Kz")
    assert terminal.lines == ["abcd", "z", "xy"]
    for unknown in ("\x1b[5Y", "\x08"):
        with pytest.raises(AssertionError):
            terminal.write(unknown)
