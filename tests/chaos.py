"""The suite of faults: every test that docs/failures.md names brings one about, and `make chaos` runs them all.

A page's row is the fault, the tests that it names are its proof. What a test measures it tells with pytest's
``record_property``: ``recovery_s ...`` (seconds until the thing goes on), ``lost`` and ``duplicates`` (metrics).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "failures.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")
FAULT = "fault"
"""Property of a test: the row that it stands in."""


@dataclass
class Row:
    """What became of one fault."""

    fault: str
    tests: int = 0
    failed: int = 0
    skipped: int = 0
    recovery_s: float | None = None
    lost: int | None = None
    duplicates: int | None = None

    @property
    def outcome(self) -> str:
        if self.failed:
            return f"FAILED {self.failed} of {self.tests}"
        return f"skipped {self.skipped} of {self.tests}" if self.skipped else "as told"


@dataclass
class Table:
    """Every fault that was tried."""

    rows: dict[str, Row] = field(default_factory=dict)

    def hear(self, report: pytest.TestReport) -> None:
        """A test counts when it was called, or when it could not be."""
        known: dict[str, Any] = dict(report.user_properties)
        if FAULT not in known or (report.when != "call" and report.passed):
            return
        row = self.rows.setdefault(known[FAULT], Row(known[FAULT]))
        row.tests += report.when != "teardown"
        row.failed += report.failed
        row.skipped += report.skipped
        for name, value in known.items():
            if name.startswith("recovery_s"):
                row.recovery_s = max(row.recovery_s or 0.0, float(value))
        for name in ("lost", "duplicates"):
            if name in known:
                setattr(row, name, (getattr(row, name) or 0) + int(known[name]))

    def lines(self) -> list[str]:
        """A line a fault, in the page's order; ``-`` where no test measures it."""
        order = list(dict.fromkeys(faults().values()))
        rows = sorted(self.rows.values(), key=lambda row: order.index(row.fault))
        cells = [("fault", "outcome", "tests", "recovery", "lost", "duplicates")]
        cells += [
            (
                row.fault,
                row.outcome,
                str(row.tests),
                "-" if row.recovery_s is None else f"{row.recovery_s:.1f} s",
                *("-" if count is None else str(count) for count in (row.lost, row.duplicates)),
            )
            for row in rows
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
        ]


def faults(page: Path = PAGE) -> Mapping[str, str]:
    """Test, as pytest names it without its parameters -> the fault that it brings about."""
    found: dict[str, str] = {}
    for line in page.read_text().splitlines():
        if line.startswith("| ") and (named := NAMED.findall(line)):
            fault = line.strip("| ").split(" | ")[0].replace("`", "")
            for test in named:
                found.setdefault(test, fault)
    return found


def mark(items: Iterable[pytest.Item]) -> None:
    """Each named test gets the marker ``chaos``, and its fault for the table."""
    known = faults()
    for item in items:
        if fault := known.get(item.nodeid.partition("[")[0]):
            item.add_marker(pytest.mark.chaos(fault))
            item.user_properties.append((FAULT, fault))


def is_wanted(config: pytest.Config) -> bool:
    """Whether the suite of faults was asked for: ``-m chaos``."""
    return str(config.getoption("markexpr")).startswith("chaos")
