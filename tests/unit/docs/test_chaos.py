"""The suite of faults: which tests belong to it, and the table at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos import FAULT, Table, faults

PAGE = """
| fault | you see | shown by |
|---|---|---|
| a job dies | `it died` | `tests/unit/a.py::test_one`, `tests/unit/b.py::test_two` |
| `S3` is away | nothing | `tests/unit/c.py::test_three` |
"""


def report(outcome: Any, *told: tuple[str, object], when: Any = "call") -> pytest.TestReport:
    return pytest.TestReport("n", ("n", 0, "n"), {}, outcome, None, when, user_properties=list(told))


def test_a_test_belongs_to_the_fault_whose_row_names_it(tmp_path: Path) -> None:
    page = tmp_path / "failures.md"
    page.write_text(PAGE)
    assert faults(page) == {
        "tests/unit/a.py::test_one": "a job dies",
        "tests/unit/b.py::test_two": "a job dies",
        "tests/unit/c.py::test_three": "S3 is away",
    }


def test_tests_that_a_row_names_are_chosen_by_the_marker(request: pytest.FixtureRequest) -> None:
    here = request.node
    assert not here.get_closest_marker("chaos")
    found = [item for item in request.session.items if item.get_closest_marker("chaos")]
    assert all(item.nodeid.partition("[")[0] in faults() for item in found)


def test_the_table_has_a_line_a_fault_with_what_its_tests_measured() -> None:
    first, second = list(dict.fromkeys(faults().values()))[:2]
    table = Table()
    for name, seconds in (("recovery_s driver", 31.0), ("recovery_s engine", 62.4)):
        table.hear(report("passed", (FAULT, first), (name, seconds), ("lost", 0), ("duplicates", 0)))
    table.hear(report("passed", (FAULT, second)))
    table.hear(report("failed", (FAULT, second)))
    table.hear(report("passed", (FAULT, second), when="setup"))
    table.hear(report("passed"))
    head, *rows = [line.split("  ") for line in table.lines()]
    assert [cell.strip() for cell in head if cell] == ["fault", "outcome", "tests", "recovery", "lost", "duplicates"]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [[first, "as told", "2", "62.4 s", "0", "0"], [second, "FAILED 1 of 2", "2", "-", "-", "-"]]
