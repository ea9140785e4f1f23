"""What observers of a run (MLflow, its page in Prefect) are told goes through here: on disk first, then to them.

An observer never holds up or ends what it observes. What it cannot be told now is told later, in order and once: by
this process while it runs, else by the next one that opens the same outbox.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tasks.errors import StageError

FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
"""Between tries of an observer that is away; the pause doubles."""
SHORT_ABSENCE = 2
"""So many tries in a row are lost without a word: servers that are busy say so, and answer the next time."""


class ObserverAway(StageError):
    """The observer does not answer now; the same may be told later."""


@dataclass(frozen=True)
class Entry:
    """One thing to tell."""

    number: int
    verb: str
    arguments: dict[str, Any]
    """As JSON: whoever tells it may be another process."""


class Outbox:
    """The entries of one observer, and the thread that tells them.

    ``take`` raises ObserverAway to be asked again; an entry for which it raises anything else is put aside (table
    ``refused``) and warned of, so that nothing behind it waits for ever.
    """

    def __init__(
        self,
        folder: Path,
        observer: str,
        take: Callable[[Entry], object],
        warn: Callable[[str], object],
    ) -> None:
        self._observer, self._take, self._warn = observer, take, warn
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{hashlib.sha256(observer.encode()).hexdigest()[:12]}.sqlite"
        self._shelf = _Shelf(self.path, observer)
        self._news, self._closing, self._given_up = threading.Condition(), threading.Event(), threading.Event()
        # With the flow's context: what the thread warns of is a line of this run's log.
        self._thread = threading.Thread(target=copy_context().run, args=(self._tell_all,), daemon=True)
        self._thread.start()

    def put(self, verb: str, **arguments: Any) -> None:
        """Keep one entry and return; it is told as soon as those before it are."""
        try:
            self._shelf.add(verb, arguments)
        except sqlite3.Error as error:
            self._warn(f"{self._observer} will not hear of one {verb}: {self.path} does not take it ({error})")
        with self._news:
            self._news.notify_all()

    def close(self, timeout_s: float) -> int:
        """Wait until everything is told, at most so long; how many entries are left on disk."""
        self._closing.set()
        with self._news:
            self._news.notify_all()
        self._thread.join(timeout_s)
        self._given_up.set()
        left = self._shelf.count()
        if left:
            self._warn(
                f"{self._observer} could not be told {left} things; they are kept in {self.path} and told by the next "
                "run that starts here"
            )
        return left

    def _tell_all(self) -> None:
        """One process tells at a time, whoever put the entry: that keeps the order."""
        with self.path.with_suffix(".lock").open("w") as lock:
            while not self._is_done():
                if self._shelf.count() and _is_ours(lock):
                    self._tell_in_order()
                    fcntl.flock(lock, fcntl.LOCK_UN)
                with self._news:
                    if not self._is_done():
                        self._news.wait(FIRST_PAUSE_S if self._shelf.count() else None)

    def _is_done(self) -> bool:
        return self._given_up.is_set() or (self._closing.is_set() and not self._shelf.count())

    def _tell_in_order(self) -> None:
        pause_s, num_lost = FIRST_PAUSE_S, 0
        while not self._given_up.is_set() and (entry := self._shelf.oldest()):
            try:
                self._take(entry)
            except ObserverAway as away:
                num_lost += 1
                if num_lost == SHORT_ABSENCE + 1:
                    self._warn(f"{self._observer} is told later: {away}")
                # The closing has a deadline of its own.
                self._given_up.wait(FIRST_PAUSE_S) if self._closing.is_set() else self._closing.wait(pause_s)
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
            except Exception as error:
                self._shelf.put_aside(entry, repr(error))
                self._warn(f"{self._observer} did not take one {entry.verb}, kept as refused in {self.path}: {error}")
            else:
                self._shelf.remove(entry)
                pause_s, num_lost = FIRST_PAUSE_S, 0


class _Shelf:
    """Entries in SQLite: a process that dies leaves each of them whole or not there."""

    def __init__(self, path: Path, observer: str) -> None:
        self._lock = threading.Lock()
        self._rows = sqlite3.connect(path, timeout=60, check_same_thread=False, isolation_level=None)
        self._rows.execute("PRAGMA journal_mode=WAL")
        for table, more in (("entries", ""), ("refused", ", why TEXT")):
            self._rows.execute(
                f"CREATE TABLE IF NOT EXISTS {table} (number INTEGER PRIMARY KEY AUTOINCREMENT, observer TEXT, "
                f"verb TEXT, arguments TEXT{more})"
            )
        self._observer = observer

    def add(self, verb: str, arguments: Mapping[str, Any]) -> None:
        with self._lock:
            self._rows.execute(
                "INSERT INTO entries (observer, verb, arguments) VALUES (?, ?, ?)",
                (self._observer, verb, json.dumps(arguments, default=str)),
            )

    def oldest(self) -> Entry | None:
        with self._lock:
            row = self._rows.execute("SELECT number, verb, arguments FROM entries ORDER BY number LIMIT 1").fetchone()
        return Entry(row[0], row[1], json.loads(row[2])) if row else None

    def remove(self, entry: Entry) -> None:
        with self._lock:
            self._rows.execute("DELETE FROM entries WHERE number = ?", (entry.number,))

    def put_aside(self, entry: Entry, why: str) -> None:
        with self._lock:
            self._rows.execute(
                "INSERT INTO refused (observer, verb, arguments, why) VALUES (?, ?, ?, ?)",
                (self._observer, entry.verb, json.dumps(entry.arguments), why),
            )
            self._rows.execute("DELETE FROM entries WHERE number = ?", (entry.number,))

    def count(self) -> int:
        with self._lock:
            return self._rows.execute("SELECT count(*) FROM entries").fetchone()[0]


def _is_ours(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
