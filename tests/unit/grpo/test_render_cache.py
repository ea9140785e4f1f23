"""The cache of rendered messages: equal messages are rendered once, failures are not kept, size is bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rl.grpo.rollouts.render_cache import RenderCache


class Renderer:
    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.fails = False

    async def __call__(self, messages: Any) -> dict[str, Any]:
        self.asked.append(messages)
        await asyncio.sleep(0)
        if self.fails:
            raise ConnectionError("engine away")
        return {"prompt_ids": [len(messages)], "features": {"kwargs_data": {"image": ["x" * 100]}}}


def test_equal_messages_are_rendered_once_even_when_they_are_asked_for_together() -> None:
    renderer = Renderer()
    cache = RenderCache(renderer, max_bytes=1000)

    async def ask() -> list[Any]:
        return list(await asyncio.gather(cache("a"), cache("bb"), cache("a"), cache("a")))

    first, second, *again = asyncio.run(ask())
    assert renderer.asked == ["a", "bb"]
    assert (cache.num_asked, cache.num_rendered) == (4, 2)
    assert first["prompt_ids"] == [1]
    assert second["prompt_ids"] == [2]
    assert all(rendered == first for rendered in again)


def test_a_failure_reaches_everyone_who_waits_and_is_not_kept() -> None:
    renderer = Renderer()
    cache = RenderCache(renderer, max_bytes=1000)

    async def ask() -> None:
        renderer.fails = True
        answers = await asyncio.gather(cache("a"), cache("a"), return_exceptions=True)
        assert [type(answer) for answer in answers] == [ConnectionError, ConnectionError]
        renderer.fails = False
        assert (await cache("a"))["prompt_ids"] == [1]

    asyncio.run(ask())
    assert renderer.asked == ["a", "a"]


@pytest.mark.parametrize(("max_bytes", "renderings"), [(1000, 3), (250, 4)])
def test_the_least_recently_used_renderings_leave_when_the_size_is_reached(max_bytes: int, renderings: int) -> None:
    renderer = Renderer()
    cache = RenderCache(renderer, max_bytes)

    async def ask() -> None:
        for messages in ("a", "bb", "a", "ccc", "a", "bb"):
            await cache(messages)

    asyncio.run(ask())
    assert len(renderer.asked) == renderings
