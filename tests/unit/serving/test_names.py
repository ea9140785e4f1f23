"""Names looked up without holding anybody up: a store that hangs, refuses or is away, and names that never end."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from serving import names
from serving.champion import Champion, ChampionObject
from serving.names import NamedLocks, Newest, Remembered, StoreAway, adapter_names, champion_name
from serving.store import BRISK
from tests.moto_server import moto_server

IDENTITY: Any = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
AWAY = EndpointConnectionError(endpoint_url="http://s3")
# As S3 answers a GET of an absent key where the identity may not list the bucket.
DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}, "GetObject")


class Store:
    """Answers what it is told to, and counts."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, 0

    def __call__(self) -> Any:
        self.asked += 1
        answer = self.answer() if callable(self.answer) else self.answer
        if isinstance(answer, Exception):
            raise answer
        return answer


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_find_is_used_for_two_seconds_and_looked_at_again_then() -> None:
    store, clock, ages = Store("a"), Clock(), []
    remembered = Remembered(store, ages.append, clock)

    async def ask() -> list[Any]:
        found = [await remembered.get(), await remembered.get()]
        store.answer = "b"
        clock.now_s += 1.9
        found.append(await remembered.get())
        clock.now_s += 0.2
        return [*found, await remembered.get()]

    assert asyncio.run(ask()) == ["a", "a", "a", "b"]
    assert store.asked == 2
    assert ages == pytest.approx([0, 0, 1.9, 0])


def test_that_there_is_nothing_is_not_remembered() -> None:
    store, clock = Store(None), Clock()
    remembered = Remembered(store, clock=clock)

    async def ask() -> list[Any]:
        found = [await remembered.get()]
        store.answer = "a"
        return [*found, await remembered.get()]

    assert asyncio.run(ask()) == [None, "a"]


@pytest.mark.parametrize("fault", [AWAY, DENIED])
def test_while_the_store_is_away_the_last_name_is_used_and_its_age_told(fault: Exception) -> None:
    store, clock, ages = Store("a"), Clock(), []
    remembered = Remembered(store, ages.append, clock)

    async def ask() -> list[Any]:
        found = [await remembered.get()]
        store.answer = fault
        for _ in range(3):
            clock.now_s += 10
            found.append(await remembered.get())
        store.answer = "b"
        clock.now_s += 10
        await remembered.get()
        await asyncio.sleep(0.1)
        return [*found, await remembered.get()]

    assert asyncio.run(ask()) == ["a", "a", "a", "a", "b"]
    assert ages[:4] == pytest.approx([0, 10, 20, 30])


@pytest.mark.parametrize(("fault", "words"), [(AWAY, "does not answer .*try again"), (DENIED, "grant .*ListBucket")])
def test_without_a_name_from_before_it_says_what_is_wrong(fault: Exception, words: str) -> None:
    with pytest.raises(StoreAway, match=words):
        asyncio.run(Remembered(Store(fault)).get())


def test_a_store_that_hangs_holds_up_nobody_else_and_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "PATIENCE_S", 0.2)
    store, clock, freed = Store("a"), Clock(), threading.Event()
    remembered = Remembered(store, clock=clock)

    async def ask() -> tuple[list[float], int]:
        await remembered.get()
        store.answer = lambda: (freed.wait(5), "b")[1]
        clock.now_s += 10
        ticks, took_s = 0, []

        async def others() -> None:
            nonlocal ticks
            while not freed.is_set():
                ticks += 1
                await asyncio.sleep(0.01)

        beside = asyncio.create_task(others())
        for _ in range(20):
            started = time.monotonic()
            assert await remembered.get() == "a"
            took_s.append(time.monotonic() - started)
            clock.now_s += 10
        freed.set()
        await beside
        return took_s, ticks

    took_s, ticks = asyncio.run(ask())
    assert ticks > 5
    assert took_s[0] < 2
    assert sum(took_s[1:]) < 0.2
    # One thread, one look: requests do not pile up behind it.
    assert store.asked == 2


def test_s3_that_accepts_and_never_answers_is_given_up_after_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        s3 = boto3.client("s3", endpoint_url=address, config=BRISK, **IDENTITY)
        started = time.monotonic()
        with pytest.raises(StoreAway, match=r"does not answer .*timeout"):
            asyncio.run(Remembered(champion_name(s3, "s3://models/tiny.champion.json")).get())
    assert time.monotonic() - started < 10


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    with moto_server() as url:
        client = boto3.client("s3", endpoint_url=url, **IDENTITY)
        client.create_bucket(Bucket="models")
        yield client


def test_the_champion_is_whom_the_object_names(s3: Any) -> None:
    uri = "s3://models/adapters/tiny.champion.json"
    look = champion_name(s3, uri)
    assert look() is None
    ChampionObject(s3, uri).write(Champion(adapter_name="a", sha256=""), None)
    assert look() == "a"


def test_every_whole_adapter_is_listed_however_many_pages_that_takes(s3: Any) -> None:
    wanted = [f"r-step-{n:04}" for n in range(1001)]
    for number, name in enumerate(wanted):
        others = ("adapter_model.safetensors", "manifest.json") if number % 10 == 0 else ()
        for file in ("adapter_config.json", *others):
            s3.put_object(Bucket="models", Key=f"adapters/many/{name}/{file}", Body=b"")
    s3.put_object(Bucket="models", Key="adapters/many/half-step-1/adapter_model.safetensors", Body=b"")
    s3.put_object(Bucket="models", Key="adapters/many.champion.json", Body=b"")
    assert list(adapter_names(s3, "s3://models/adapters/many")()) == wanted


def test_a_lock_is_there_only_while_somebody_wants_it() -> None:
    locks, inside, most = NamedLocks(), 0, 0

    async def load(name: str) -> None:
        nonlocal inside, most
        async with locks.held(name):
            inside += name == "a"
            most = max(most, inside)
            await asyncio.sleep(0.01)
            inside -= name == "a"
            if name == "broken":
                raise RuntimeError

    async def all_of_them() -> None:
        await asyncio.gather(*(load("a") for _ in range(5)), *(load(f"n{n}") for n in range(50)))
        assert isinstance((await asyncio.gather(load("broken"), return_exceptions=True))[0], RuntimeError)

    asyncio.run(all_of_them())
    assert (most, len(locks)) == (1, 0)


def test_names_from_outside_push_out_those_used_longest_ago() -> None:
    kept: Newest[int] = Newest(2)
    kept["base"], kept["a"] = 0, 1
    assert kept["base"] == 0
    kept["b"] = 2
    assert list(kept) == ["base", "b"]
    assert "a" not in kept
