"""Small named checks: what is looked at, what was found, what to do. All run, then there is one verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread

from tasks.errors import ClusterNotReady, StageError
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
    """Every check at once, all of them together for at most ``timeout_s``; one that hangs holds up nothing."""
    return tuple(start_checks(wanted, timeout_s)())


def start_checks(
    wanted: Sequence[ToCheck], timeout_s: float, clock: Callable[[], float] = time.monotonic
) -> Callable[[], Iterator[Check]]:
    """The same, started now and collected by calling what is returned; the time runs from now on for all of them.

    What is collected comes in the order in which it was asked, each as soon as it is known.
    """
    deadline = clock() + timeout_s
    running = [(asked, _asked(asked.look)) for asked in wanted]

    def collected() -> Iterator[Check]:
        return (_found(asked, answer, deadline - clock(), timeout_s) for asked, answer in running)

    return collected


def _asked(look: Callable[[], str]) -> Future[str]:
    """In a thread that keeps no process from its end: a look may never come back."""
    answer: Future[str] = Future()

    def ask() -> None:
        try:
            answer.set_result(look())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()
    return answer


def _found(asked: ToCheck, answer: Future[str], left_s: float, timeout_s: float) -> Check:
    try:
        return Check(name=asked.name, holds=True, found=answer.result(max(0.0, left_s)))
    except TimeoutError as error:
        # A look's own time limit is its error, as any other.
        text = f"TimeoutError: {error}" if answer.done() else f"no answer within {timeout_s:g} s"
    except (StageError, Unready) as error:
        # Ours are sentences; a library's error often needs its name to mean something.
        return Check(name=asked.name, holds=False, found=str(error), remedy=getattr(error, "todo", "") or asked.remedy)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    return Check(name=asked.name, holds=False, found=text, remedy=asked.remedy)


def require_ready(found: Sequence[Check]) -> None:
    """Raise ClusterNotReady with every check that does not hold."""
    broken = [f"- {check.name}: {check.found}; {check.remedy}" for check in found if not check.holds]
    if broken:
        raise ClusterNotReady("not everything is there that this run needs:\n" + "\n".join(broken))
