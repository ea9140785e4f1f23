"""What a run leaves behind, part by part: find it, say what it costs, take it away. Not being there is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tasks.records import Record

Say = Callable[[str], object]


class Leftover(Record):
    """Something of a run that still exists."""

    part: str
    """jobs, checkpoints, training, serving, identity, adapters or machines."""
    name: str
    found: str = ""
    """What is known of it."""
    usd_per_h: float = 0.0
    """What it costs, in US dollars per hour."""
    keep: str = ""
    """Why it stays; empty for what may go."""


class LeftPart(Protocol):
    """One kind of thing."""

    name: str

    def find(self, run_name: str) -> list[Leftover]: ...

    def remove(self, run_name: str, left: Leftover) -> None:
        """Take it away and wait until it is gone."""
        ...


def clean(parts: Sequence[LeftPart], remove: Sequence[str], run_name: str, dry_run: bool, say: Say) -> list[Leftover]:
    """Take away what may go of the named parts, in the order of ``parts``; returns what is there afterwards.

    A part that fails keeps none of the others; all failures are raised together, at the end.
    """
    failures: list[Exception] = []
    left: list[Leftover] = []
    for part in parts:
        try:
            left += _clean_part(part, part.name in remove, run_name, dry_run, say)
        except Exception as error:
            say(f"{part.name}: {error}")
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"clean-up of {run_name} is not complete; run it again", failures)
    return left


def _clean_part(part: LeftPart, may_go: bool, run_name: str, dry_run: bool, say: Say) -> list[Leftover]:
    stays = []
    for left in part.find(run_name):
        if left.keep or not may_go:
            say(f"{left.part}: {left.name} stays ({left.keep or 'not asked to remove'})")
            stays.append(left)
        elif dry_run:
            say(f"{left.part}: {left.name} would be removed")
            stays.append(left)
        else:
            say(f"{left.part}: removing {left.name}")
            part.remove(run_name, left)
    return stays
