"""The README is short, and its picture and licence are what they are said to be."""

from __future__ import annotations

import tomllib

from docs.draw_run import REPLAYS, TABLE, solved_by_step
from tests.unit.docs.pages import PROJECT

MAX_LINES = 150


def test_it_is_read_in_one_sitting() -> None:
    lines = (PROJECT / "README.md").read_text().splitlines()
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= 140


def test_its_picture_shows_the_measured_run() -> None:
    solved = solved_by_step(TABLE.read_text())
    assert list(solved) == [0, 10, 20, 30, 40, 50, 60]
    said = (PROJECT / "README.md").read_text().replace("\n", " ")
    best = max(solved, key=lambda step: solved[step])
    assert f"{solved[0]} of 64 held-out mazes before, {solved[best]} at step {best}" in said
    assert REPLAYS.is_file()


def test_the_licence_is_the_one_that_is_declared() -> None:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert declared["license"] == "Apache-2.0"
    text = (PROJECT / declared["license-files"][0]).read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
