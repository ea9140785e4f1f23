"""The cutter itself: it finds what a repeated run does not put right, and counts calls that nobody named."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import requests

from tests.every_cut import every_cut, outside


class Shelf:
    """Two registers that should agree."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {"left": 0, "right": 0}

    def get(self, name: str) -> int:
        return self.kept[name]

    def put(self, name: str, value: int) -> None:
        self.kept[name] = value


class SetsBoth:
    def __init__(self) -> None:
        self.shelf = Shelf()

    def run(self) -> None:
        shelf = outside(self.shelf)
        shelf.put("left", 7)
        shelf.put("right", 7)

    def state(self) -> dict[str, int]:
        return dict(self.shelf.kept)


class CountsUp(SetsBoth):
    """What it does depends on what it finds half done."""

    def run(self) -> None:
        shelf = outside(self.shelf)
        if shelf.get("left") == 0:
            shelf.put("left", 1)
            shelf.put("right", 1)


class CountsOnceMore(SetsBoth):
    def run(self) -> None:
        shelf = outside(self.shelf)
        shelf.put("left", shelf.get("left") + 1)


class ClearsUp(SetsBoth):
    """Takes everything back where it is interrupted: a process that is gone cannot."""

    def run(self) -> None:
        shelf = outside(self.shelf)
        if shelf.get("left") == 1:
            raise RuntimeError("somebody left something here")
        try:
            shelf.put("left", 1)
            shelf.put("right", 1)
        except BaseException:
            shelf.put("left", 0)
            raise
        shelf.put("left", 2)

    def state(self) -> dict[str, int]:
        return {"right": self.shelf.kept["right"]}


def test_what_ends_alike_wherever_it_was_cut_passes_and_is_counted() -> None:
    cuts = every_cut(SetsBoth)
    assert cuts.calls == ["Shelf.put", "Shelf.put"]
    assert len(cuts.tried) == 2 * 2 * 2
    assert str(cuts) == "2 outside calls, cut at 8 points"


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (CountsUp, r"number=2, where='after', how='killed'.*Shelf.put; it was killed; done again it leaves"),
        (CountsOnceMore, "done twice it does not end where it ended before"),
        (ClearsUp, r"how='killed'.*done again it ends with RuntimeError: somebody left something here"),
    ],
)
def test_what_does_not_is_named_with_its_cut(operation: type[SetsBoth], message: str) -> None:
    with pytest.raises(AssertionError, match=f"(?s){message}"):
        every_cut(operation)


def test_what_must_always_hold_is_looked_at_between_the_two_tries() -> None:
    def agree(trial: SetsBoth) -> None:
        assert len(set(trial.shelf.kept.values())) == 1, "the two are apart"

    with pytest.raises(AssertionError, match="the two are apart"):
        every_cut(SetsBoth, always=agree)


@contextmanager
def register() -> Iterator[tuple[str, list[str]]]:
    """An HTTP server that notes what it is told."""
    told: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            told.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", told
    finally:
        server.shutdown()
        server.server_close()


def test_a_request_is_cut_where_it_is_sent_before_and_after_the_server_heard_of_it() -> None:
    heard: list[int] = []
    with register() as (url, told):

        class Tells:
            def __init__(self) -> None:
                told.clear()

            def run(self) -> None:
                requests.put(f"{url}/thing", timeout=5)

            def state(self) -> set[str]:
                return set(told)

        cuts = every_cut(Tells, always=lambda trial: heard.append(len(told)))
    assert len(cuts.tried) == 4
    # Undisturbed; then in between and repeated: unheard and once, heard and twice, each killed and failed.
    assert heard == [1, 0, 1, 1, 2, 0, 1, 1, 2]
