"""What a run leaves behind, part by part: find it, say what it costs, take it away. Not being there is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tasks.errors import StageError
from tasks.records import Record

Say = Callable[[str], object]
NOT_LOOKED_AT = "not looked at"


class InUse(StageError):
    """Something came into use between the look and its removal."""


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

    def find(self, run_name: str) -> list[Leftover]:
        """What is there. A missing answer is raised: it is never "nothing"."""
        ...

    def unseen(self, run_name: str) -> list[Leftover]:
        """What has to be assumed, with its price, when nobody could look."""
        ...

    def remove(self, run_name: str, left: Leftover) -> None:
        """Take it away and wait until it is gone."""
        ...


def clean(
    parts: Sequence[LeftPart],
    remove: Sequence[str],
    run_name: str,
    dry_run: bool,
    say: Say,
    left: list[Leftover] | None = None,
    overtaken: str = "",
) -> list[Leftover]:
    """Take away what may go of the named parts, in the order of ``parts``; returns what is there afterwards.

    A part that fails keeps none of the others; all failures are raised together, at the end, and ``left`` has by then
    what is there and what nobody could look at. Where the order is ``overtaken`` all stays, with that reason.
    """
    left = [] if left is None else left
    failures: list[Exception] = []
    for part in parts:
        try:
            found = part.find(run_name)
        except Exception as error:
            left += [_not_seen(thing, error, say) for thing in part.unseen(run_name)]
            failures.append(error)
            continue
        reason = overtaken if part.name in remove else "not asked to remove"
        for thing in found:
            try:
                left += _clean_one(part, thing, reason, run_name, dry_run, say)
            except Exception as error:
                say(f"{part.name}: {error}")
                left.append(thing.model_copy(update={"keep": f"it could not be removed: {error}"}))
                failures.append(error)
    if failures:
        raise ExceptionGroup(f"clean-up of {run_name} is not complete; run it again", failures)
    return left


def _not_seen(thing: Leftover, because: Exception, say: Say) -> Leftover:
    """The same, as what nobody could look at."""
    say(f"{thing.part}: {thing.name} was {NOT_LOOKED_AT} ({because})")
    return thing.model_copy(update={"found": NOT_LOOKED_AT, "keep": str(because)})


def _clean_one(part: LeftPart, thing: Leftover, reason: str, run_name: str, dry_run: bool, say: Say) -> list[Leftover]:
    """Take it away, or return it with why it stays."""
    if why := thing.keep or reason:
        say(f"{thing.part}: {thing.name} stays ({why})")
        return [thing.model_copy(update={"keep": why})]
    if dry_run:
        say(f"{thing.part}: {thing.name} would be removed")
        return [thing]
    say(f"{thing.part}: removing {thing.name}")
    part.remove(run_name, thing)
    return []
