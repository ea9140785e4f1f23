"""What no test may leave behind for the next, which files run first, and how long each took.

Loaded in every environment that runs tests (.venv and .venv-train): it needs pytest and boto3 only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import boto3
import pytest

from tests import asked_of_aws

asked_of_aws.install()

TOOK_S: defaultdict[str, float] = defaultdict(float)
"""Seconds of each file so far. What several files share counts for the one that first asks for it."""
DECLARED_S: dict[str, float] = {}
"""Seconds that a file says of itself: ``pytestmark = pytest.mark.slow_s(30)``."""


@pytest.fixture(autouse=True)
def asks_aws_only_for_what_its_roles_may() -> Iterator[None]:
    """Whatever the code asks of AWS in any test, its role's policy in docker/iam grants."""
    yield
    asked_of_aws.require_granted()


@pytest.fixture(autouse=True)
def forgets_its_aws_identity() -> Iterator[None]:
    """boto3 keeps the first identity it finds for the whole process; the next test reads its own environment."""
    yield
    boto3.DEFAULT_SESSION = None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The quick files first, so that a mistake shows early. Files that say nothing stay ahead, in their order."""
    for item in items:
        module = item.getparent(pytest.Module)
        mark = module.get_closest_marker("slow_s") if module else None
        DECLARED_S[file_of(item.nodeid)] = mark.args[0] if mark else 0.0
    items.sort(key=lambda item: DECLARED_S[file_of(item.nodeid)])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    TOOK_S[file_of(report.nodeid)] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Declared beside measured: who sees them apart corrects the mark."""
    if TOOK_S:
        terminalreporter.section("time per file")
    for path, took_s in sorted(TOOK_S.items(), key=lambda entry: entry[1]):
        declared = f"  (declared {DECLARED_S[path]:g} s)" if DECLARED_S.get(path) else ""
        terminalreporter.write_line(f"{took_s:8.1f} s  {path}{declared}")


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
