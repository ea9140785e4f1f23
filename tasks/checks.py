"""Small named checks: what is looked at, what was found, what to do. All run, then there is one verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from dataclasses import dataclass

from tasks.errors import ClusterNotReady
from tasks.records import Check


@dataclass(frozen=True)
class ToCheck:
    """``look`` says what it found, or raises."""

    name: str
    look: Callable[[], str]
    remedy: str


class Unready(RuntimeError):
    """What was found is not what the run needs."""


def run_checks(wanted: Sequence[ToCheck], timeout_s: float) -> tuple[Check, ...]:
    """Every check at once, each for at most ``timeout_s``; one that fails or hangs keeps none of the others."""
    pool = ThreadPoolExecutor(max_workers=len(wanted))
    try:
        running = [(asked, pool.submit(asked.look)) for asked in wanted]
        found = []
        for asked, answer in running:
            try:
                found.append(Check(name=asked.name, holds=True, found=answer.result(timeout_s)))
            except TimeoutError:
                text = f"no answer within {timeout_s:g} s"
                found.append(Check(name=asked.name, holds=False, found=text, remedy=asked.remedy))
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                found.append(Check(name=asked.name, holds=False, found=text, remedy=asked.remedy))
        return tuple(found)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def require_ready(found: Sequence[Check]) -> None:
    """Raise ClusterNotReady with every check that does not hold."""
    broken = [f"- {check.name}: {check.found}; {check.remedy}" for check in found if not check.holds]
    if broken:
        raise ClusterNotReady("not everything is there that this run needs:\n" + "\n".join(broken))
