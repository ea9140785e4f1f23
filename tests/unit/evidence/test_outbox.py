"""What an observer that is away is told later: all of it, in order, once, by whoever comes next."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import tasks.evidence.outbox
from tasks.evidence.outbox import Entry, ObserverAway, Outbox


class Observer:
    """Takes entries while it is there."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.heard: list[str] = []
        self.asked = 0

    def take(self, entry: Entry) -> None:
        self.asked += 1
        if not self.there.is_set():
            raise ObserverAway("gone to lunch")
        if entry.verb == "nonsense":
            raise ValueError("no such thing")
        self.heard.append(f"{entry.verb} {entry.arguments.get('step', '')}".strip())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.evidence.outbox, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(tasks.evidence.outbox, "MAX_PAUSE_S", 0.02)


def test_an_observer_that_is_away_holds_nobody_up_and_hears_everything_in_order(tmp_path: Path) -> None:
    observer, warned = Observer(), list[str]()
    outbox = Outbox(tmp_path, "o", observer.take, warned.append)
    for step in range(20):
        outbox.put("metrics", step=step)
    observer.there.set()
    assert outbox.close(timeout_s=30) == 0
    assert observer.heard == [f"metrics {step}" for step in range(20)]
    assert len(warned) <= 1, "an absence is told once"


def test_what_could_not_be_told_is_kept_and_told_by_the_next_run_before_its_own(tmp_path: Path) -> None:
    observer, warned = Observer(), list[str]()
    first = Outbox(tmp_path, "o", observer.take, warned.append)
    first.put("metrics", step=1)
    first.put("end", status="FAILED")
    assert first.close(timeout_s=0.2) == 2
    assert f"o could not be told 2 things; they are kept in {first.path}" in warned[-1]
    observer.there.set()
    second = Outbox(tmp_path, "o", observer.take, warned.append)
    second.put("metrics", step=2)
    assert second.close(timeout_s=30) == 0
    assert observer.heard == ["metrics 1", "end", "metrics 2"]
    assert Outbox(tmp_path, "o", observer.take, warned.append).close(timeout_s=30) == 0
    assert len(observer.heard) == 3, "nothing is told twice"


def test_what_is_refused_is_put_aside_and_holds_up_nothing_behind_it(tmp_path: Path) -> None:
    observer, warned = Observer(), list[str]()
    observer.there.set()
    outbox = Outbox(tmp_path, "o", observer.take, warned.append)
    outbox.put("nonsense")
    outbox.put("metrics", step=1)
    assert outbox.close(timeout_s=30) == 0
    assert observer.heard == ["metrics 1"]
    assert warned[0].startswith("o did not take one nonsense")
    assert warned[0].endswith("no such thing")


def test_two_runs_at_once_never_tell_the_same_thing_twice(tmp_path: Path) -> None:
    observer, warned = Observer(), list[str]()
    observer.there.set()
    outboxes = [Outbox(tmp_path, "o", observer.take, warned.append) for _ in range(2)]
    for step in range(50):
        outboxes[step % 2].put("metrics", step=step)
    assert [outbox.close(timeout_s=30) for outbox in outboxes] == [0, 0]
    assert observer.heard == [f"metrics {step}" for step in range(50)]
    assert not warned


def test_observers_do_not_wait_for_each_other(tmp_path: Path) -> None:
    away, there, warned = Observer(), Observer(), list[str]()
    there.there.set()
    outboxes = [Outbox(tmp_path, name, who.take, warned.append) for name, who in (("away", away), ("there", there))]
    for outbox in outboxes:
        outbox.put("metrics", step=1)
    assert outboxes[1].close(timeout_s=30) == 0
    assert outboxes[0].close(timeout_s=0.1) == 1


def test_a_disk_that_takes_nothing_ends_no_run(tmp_path: Path) -> None:
    observer, warned = Observer(), list[str]()
    observer.there.set()
    outbox = Outbox(tmp_path, "o", observer.take, warned.append)
    outbox._shelf._rows.execute("PRAGMA query_only = ON")
    outbox.put("metrics", step=1)
    outbox._shelf._rows.execute("PRAGMA query_only = OFF")
    assert outbox.close(timeout_s=30) == 0
    assert "o will not hear of one metrics" in warned[0]
