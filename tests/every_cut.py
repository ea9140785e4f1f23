"""Cut an operation at every one of its outside calls, do it again, and compare with a run that nothing disturbed.

An outside call is whatever leaves the process: an HTTP request (botocore, requests, the Kubernetes and the MLflow
client all send theirs through urllib3; Ray follows logs through aiohttp) or a transaction of a database (MLflow on
SQLite). They are caught where they are sent, so an effect that somebody adds tomorrow is cut without being named here.
A fake that is handed in as an object is wrapped with ``outside``.

Each call is cut twice, before the other side hears of it and after it has done what was asked, and in two ways:

* ``killed``: the process is gone. Nothing that it would still do reaches the outside, its ``finally`` neither.
* ``failed``: the connection breaks. The operation tries again, clears up or raises, as it likes.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import thread as pools
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import unified_diff
from pprint import pformat
from typing import Any, Literal, Protocol

import aiohttp
import pytest
from sqlalchemy.engine.default import DefaultDialect
from urllib3.connectionpool import HTTPConnectionPool

Where = Literal["before", "after"]
How = Literal["killed", "failed"]
PAUSE_S = 0.001
"""What every pause is cut down to: who waits between two tries should not make a test wait."""


class Trial(Protocol):
    """An operation on a world of its own."""

    def run(self) -> object:
        """The operation as a fresh process would do it: with clients of its own."""
        ...

    def state(self) -> Any:
        """What the world has come to; compared with ``==``."""
        ...


class Killed(BaseException):
    """The process ends here."""


@dataclass(frozen=True)
class Cut:
    """One place to cut."""

    number: int
    """Of the outside call, from 1."""
    where: Where
    how: How


@dataclass
class Cuts:
    """What was covered."""

    calls: list[str]
    """The outside calls of the undisturbed run, in order."""
    tried: list[Cut] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{len(self.calls)} outside calls, cut at {len(self.tried)} points"


@dataclass
class Wire:
    """Counts the calls that go out, and cuts one of them."""

    cut: Cut | None = None
    calls: list[str] = field(default_factory=list)
    dead: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def outward(self, label: str, fault: Callable[[str], Exception]) -> bool:
        """Before a call: breaks it, or says whether it breaks afterwards."""
        with self.lock:
            if self.dead:
                raise Killed(label)
            self.calls.append(label)
            mine = self.cut is not None and self.cut.number == len(self.calls)
        if mine and self.cut and self.cut.where == "before":
            self.break_off(label, fault)
        return mine

    def break_off(self, label: str, fault: Callable[[str], Exception]) -> None:
        assert self.cut
        if self.cut.how == "killed":
            self.dead = True
            raise Killed(label)
        raise fault(f"cut {self.cut.where} {label}")


_active: list[Wire] = []
_elsewhere = threading.local()
"""Set in a thread while it does what another process does."""


def every_cut(
    make: Callable[[], Trial],
    always: Callable[[Any], object] = lambda trial: None,
    ways: tuple[How, ...] = ("killed", "failed"),
    sides: tuple[Where, ...] = ("before", "after"),
    reads: bool = True,
) -> Cuts:
    """Cut ``make().run()`` everywhere; the repeated run must end where an undisturbed one does.

    ``always`` looks at each trial after it was cut, and once it was repeated: what must hold in between as well.
    A long operation may be killed before its calls only (dying after one is dying before the next, but for what is done
    between them), and of several looks in a row before the first (``reads=False``): the world is the same at all.
    """
    wanted_trial, wire = make(), Wire()
    with _wired(wire):
        wanted_trial.run()
    wanted = wanted_trial.state()
    always(wanted_trial)
    wanted_trial.run()
    assert wanted_trial.state() == wanted, "done twice it does not end where it ended before"
    cuts = Cuts(wire.calls)
    assert cuts.calls, "nothing went out: is what it asks wrapped with outside()?"
    for number in _to_cut(wire.calls, reads):
        for how in ways:
            for where in sides:
                cut = Cut(number, where, how)
                _try(make(), cut, wanted, always)
                cuts.tried.append(cut)
    print(cuts)  # pytest shows it with -s, and whenever a test fails
    return cuts


LOOK = re.compile(r"GET |POST \S+/v1/chat/|\w+\.(get_|list_|read)")
"""A call that changes nothing outside; whatever is not known to be one is taken to change something."""


def _to_cut(calls: Sequence[str], reads: bool) -> list[int]:
    """Numbers of the calls to cut, from 1."""
    looks = [False, *(LOOK.match(call) is not None for call in calls)]
    return [number for number in range(1, len(calls) + 1) if reads or not (looks[number] and looks[number - 1])]


def _try(trial: Trial, cut: Cut, wanted: Any, always: Callable[[Any], object]) -> None:
    wire, ended, others = Wire(cut), "", set(threading.enumerate())
    with _wired(wire):
        try:
            trial.run()
        except Killed:
            ended = "was killed"
        except Exception as error:
            ended = f"ended with {type(error).__name__}: {error}"
        _outlast(others)
    call = wire.calls[cut.number - 1] if len(wire.calls) >= cut.number else "not reached"
    at = f"{cut} = {call}; it {ended or 'ended'}"
    always(trial)
    try:
        trial.run()
    except Exception as error:
        raise AssertionError(f"{at}; done again it ends with {type(error).__name__}: {error}") from error
    always(trial)
    found = trial.state()
    assert found == wanted, f"{at}; done again it leaves something else (-: wanted, +: found)\n{_diff(wanted, found)}"


def _diff(wanted: Any, found: Any) -> str:
    before, after = (pformat(state, width=110).splitlines() for state in (wanted, found))
    return "\n".join(unified_diff(before, after, n=1, lineterm=""))


def _outlast(others: set[threading.Thread]) -> None:
    """Wait for the threads that a killed process had: their next outside call is not made either.

    Servers stay, and so do the workers of thread pools, which wait for work for ever: a pool that is at work is waited
    for by whoever opened it.
    """
    for thread in set(threading.enumerate()) - others - set(pools._threads_queues):
        if "process_request" not in thread.name:
            thread.join(timeout=20)


def outside(fake: Any) -> Any:
    """The same object, each call of a method an outside call."""
    return _Outside(fake)


class _Outside:
    def __init__(self, fake: Any) -> None:
        self.__dict__["_fake"] = fake

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._fake, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            label = f"{type(self._fake).__name__}.{name}"
            return _through(label, ConnectionError, lambda: found(*args, **kwargs))

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._fake, name, value)


@contextmanager
def elsewhere() -> Iterator[None]:
    """What happens in the block is another process's doing: it is not cut, and not killed with this one."""
    before = getattr(_elsewhere, "on", False)
    _elsewhere.on = True
    try:
        yield
    finally:
        _elsewhere.on = before


def _through[T](label: str, fault: Callable[[str], Exception], call: Callable[[], T]) -> T:
    if not _active or getattr(_elsewhere, "on", False):
        return call()
    wire = _active[-1]
    breaks = wire.outward(label, fault)
    answer = call()
    if breaks:
        wire.break_off(label, fault)
    return answer


@contextmanager
def _wired(wire: Wire) -> Iterator[None]:
    """Everything that this process sends goes through ``wire``."""
    request, commit, sleep = HTTPConnectionPool._make_request, DefaultDialect.do_commit, time.sleep
    async_request = aiohttp.ClientSession._request

    def make_request(pool: Any, conn: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        label = f"{method} {pool.host}:{pool.port}{url.partition('?')[0]}"
        return _through(label, ConnectionResetError, lambda: request(pool, conn, method, url, *args, **kwargs))

    def do_commit(dialect: Any, connection: Any) -> None:
        return _through("commit", sqlite3.OperationalError, lambda: commit(dialect, connection))

    async def make_async_request(session: Any, method: str, url: Any, **kwargs: Any) -> Any:
        label = f"{method} {url}"
        breaks = wire.outward(label, aiohttp.ClientOSError)
        answer = await async_request(session, method, url, **kwargs)
        if breaks:
            answer.close()
            wire.break_off(label, aiohttp.ClientOSError)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HTTPConnectionPool, "_make_request", make_request)
        patch.setattr(DefaultDialect, "do_commit", do_commit)
        patch.setattr(aiohttp.ClientSession, "_request", make_async_request)
        patch.setattr(time, "sleep", lambda seconds: sleep(min(seconds, PAUSE_S)))
        _active.append(wire)
        try:
            yield
        finally:
            _active.remove(wire)
