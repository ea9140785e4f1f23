"""Names that clients ask for, looked up without holding anybody up: nothing of Ray is imported.

The store is asked in a thread of its own and with short time limits. While it is away what was known from before is
used; who asks for something else never waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from botocore.exceptions import ClientError

from serving.champion import ChampionObject
from serving.files import CONFIG

MAX_AGE_S = 2.0
"""How long what was found may be used again without a look."""
PATIENCE_S = 1.0
"""How long a look is waited for when something is known from before."""


class StoreAway(RuntimeError):
    """The object store does not say, and nothing is known from before."""


class Remembered[Found]:
    """What a blocking ``look`` found: one look at a time, kept for ``MAX_AGE_S`` if it is anything."""

    def __init__(
        self,
        look: Callable[[], Found],
        note_age_s: Callable[[float], object] = lambda age_s: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._note_age_s, self._clock = look, note_age_s, clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._looking: asyncio.Future[Found] | None = None
        self._known: tuple[Found, float] | None = None
        self._looked_s = -MAX_AGE_S
        self._fault: Exception | None = None

    async def get(self) -> Found:
        """What is known, at most ``MAX_AGE_S`` old unless the store is away; raises StoreAway."""
        if self._clock() - self._looked_s >= MAX_AGE_S and self._looking is None:
            self._looked_s = self._clock()
            self._looking = asyncio.get_running_loop().run_in_executor(self._thread, self._look)
            self._looking.add_done_callback(self._heard)
        if self._looking is not None and not (self._known and self._fault):
            # Others may wait for the same look; nobody takes it from them.
            await asyncio.wait({self._looking}, timeout=PATIENCE_S if self._known else None)
            if self._looking is not None:
                self._fault = TimeoutError(f"no answer within {PATIENCE_S:g} s")
        if self._known is None:
            raise StoreAway(refusal(self._fault)) from self._fault
        found, found_s = self._known
        self._note_age_s(self._clock() - found_s)
        return found

    def _heard(self, answer: asyncio.Future[Found]) -> None:
        self._looking = None
        self._fault = None if answer.cancelled() else answer.exception()  # type: ignore[assignment]
        if not answer.cancelled() and self._fault is None:
            self._known = (answer.result(), self._clock())
            if answer.result() is None:
                # What is not there yet may be there the next moment.
                self._looked_s = -MAX_AGE_S


def refusal(error: BaseException | None) -> str:
    """What the store's answer means, and what to do."""
    said = error.response.get("Error", {}).get("Code", "") if isinstance(error, ClientError) else ""
    if said in ("AccessDenied", "403"):
        return (
            f"the object store refuses ({error}); S3 answers so for an object that is absent, too, where the identity "
            "lacks s3:ListBucket: grant s3:GetObject and s3:ListBucket to the serving pods"
        )
    return f"the object store does not answer ({error}); try again, or ask for an adapter by its own name"


def champion_name(s3: Any, uri: str) -> Callable[[], str | None]:
    """A look at who is champion; None while nobody is. Raises what botocore raises."""
    pointer = ChampionObject(s3, uri)

    def look() -> str | None:
        seen = pointer.read()
        return seen.champion.adapter_name if seen else None

    return look


def adapter_names(s3: Any, adapters_uri: str) -> Callable[[], tuple[str, ...]]:
    """A look at all adapters that a server would find, in order: by their configurations, page by page."""
    bucket, _, folder = adapters_uri.removeprefix("s3://").partition("/")

    def look() -> tuple[str, ...]:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{folder}/")
        keys = [found["Key"].removeprefix(f"{folder}/") for page in pages for found in page.get("Contents", [])]
        return tuple(sorted(name for name, _, file in (key.partition("/") for key in keys) if file == CONFIG))

    return look


class Newest[Kept](OrderedDict[str, Kept]):
    """A dictionary that forgets who was used longest ago: its names come from outside."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __getitem__(self, name: str) -> Kept:
        self.move_to_end(name)
        return super().__getitem__(name)

    def __setitem__(self, name: str, kept: Kept) -> None:
        super().__setitem__(name, kept)
        if len(self) > self._most:
            self.popitem(last=False)


class NamedLocks:
    """One lock for each name, there only while somebody holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def held(self, name: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] = self._users.get(name, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]
