"""Each fault in docs/failures.md is shown by tests, and every test that a page names is there."""

from __future__ import annotations

import re

from tests.unit.docs.pages import PROJECT, spans

PAGE = PROJECT / "docs" / "failures.md"
NAMED = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")


def rows() -> list[list[str]]:
    """Cells of every fault."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if not line.startswith("| fault |")
    ]


def is_there(path: str, name: str) -> bool:
    file = PROJECT / path
    return file.is_file() and re.search(rf"^(async )?def {name}\(", file.read_text(), re.MULTILINE) is not None


def test_every_fault_says_what_is_seen_what_happens_what_to_do_and_which_test_shows_it() -> None:
    assert len(rows()) >= 25
    for cells in rows():
        assert len(cells) == 5, cells
        assert all(cells), cells
        assert NAMED.search(cells[4]), cells


def test_every_test_that_a_page_names_is_there() -> None:
    named = [(span, found.groups()) for span in spans() if (found := NAMED.fullmatch(span.text))]
    assert len(named) >= 30
    assert not [str(span) for span, (path, name) in named if not is_there(path, name)]
