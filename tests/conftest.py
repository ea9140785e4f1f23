"""What no test may leave behind, for the next or in the project, which files run first, and how long each took.

Loaded in every environment that runs tests (.venv and .venv-train): it needs pytest and boto3 only.
"""

from __future__ import annotations

import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from tests import asked_of_aws, chaos

asked_of_aws.install()

TOOK_S: defaultdict[str, float] = defaultdict(float)
"""Seconds of each file so far. What several files share counts for the one that first asks for it."""
TREE, LEFT = pytest.StashKey[set[str] | None](), pytest.StashKey[list[str]]()
"""The project's folder before the tests, and what differs after them."""
FAULTS = chaos.Table()
"""What became of each fault of docs/failures.md that was tried."""
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


def pytest_configure() -> None:
    """A shell's background job (``make test &``) ignores Ctrl-C, and all that it starts with it; tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.stash[TREE] = working_tree(session.config.rootpath)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The tests leave the project's folder as it was, or they have failed."""
    before = session.config.stash.get(TREE, None)
    if before is None:
        return
    session.config.stash[LEFT] = sorted((working_tree(session.config.rootpath) or set()) ^ before)
    if session.config.stash[LEFT] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def working_tree(root: Path) -> set[str] | None:
    """What git finds changed or new in the project; None where there is no git, or no repository."""
    try:
        command = ["git", "status", "--porcelain", "--untracked-files=all"]
        return set(subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.splitlines())
    except (OSError, subprocess.CalledProcessError):
        return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The quick files first, so that a mistake shows early. Files that say nothing stay ahead, in their order. Tests of
    faults get their marker before pytest chooses by markers."""
    chaos.mark(items)
    for item in items:
        module = item.getparent(pytest.Module)
        mark = module.get_closest_marker("slow_s") if module else None
        DECLARED_S[file_of(item.nodeid)] = mark.args[0] if mark else 0.0
    items.sort(key=lambda item: DECLARED_S[file_of(item.nodeid)])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    TOOK_S[file_of(report.nodeid)] += report.duration
    FAULTS.hear(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests left behind; and declared beside measured: who sees them apart corrects the mark."""
    stash = terminalreporter.config.stash
    if stash.get(TREE, None) is None:
        terminalreporter.write_line("not checked that the project's folder is as it was: git does not know it")
    for path in stash.get(LEFT, []):
        terminalreporter.write_line(f"CHANGED WHILE THE TESTS RAN: {path}; a test writes under tmp_path", red=True)
    if TOOK_S:
        terminalreporter.section("time per file")
    for path, took_s in sorted(TOOK_S.items(), key=lambda entry: entry[1]):
        declared = f"  (declared {DECLARED_S[path]:g} s)" if DECLARED_S.get(path) else ""
        terminalreporter.write_line(f"{took_s:8.1f} s  {path}{declared}")
    if FAULTS.rows and chaos.is_wanted(terminalreporter.config):
        terminalreporter.section("faults")
        for line in FAULTS.lines():
            terminalreporter.write_line(line)


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
