"""Rendered messages, kept: rollouts of one maze see the same pictures again and again.

Rendering (chat template, tokeniser, image processor) depends on the message alone, so its result is kept under the
message's digest. Equal messages that arrive while the first is being rendered wait for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

Rendered = dict[str, Any]


class RenderCache:
    """Least recently used renderings up to ``max_bytes`` of serialised image data."""

    def __init__(self, render: Callable[[Any], Awaitable[Rendered]], max_bytes: int) -> None:
        self._render, self._max_bytes = render, max_bytes
        self._kept: OrderedDict[str, asyncio.Future[Rendered]] = OrderedDict()
        self._size_bytes = 0
        self.num_asked = self.num_rendered = 0

    async def __call__(self, messages: Any) -> Rendered:
        """The rendering of ``messages``; callers must not change it."""
        key = hashlib.sha256(json.dumps(messages, sort_keys=True).encode()).hexdigest()
        self.num_asked += 1
        if key in self._kept:
            self._kept.move_to_end(key)
            return await self._kept[key]
        self.num_rendered += 1
        waiting = self._kept[key] = asyncio.get_running_loop().create_future()
        try:
            rendered = await self._render(messages)
        except BaseException as error:
            del self._kept[key]
            waiting.set_exception(error)
            # Marked as seen: those who wait raise it, and if nobody does, this call has.
            waiting.exception()
            raise
        waiting.set_result(rendered)
        self._size_bytes += _size_bytes(rendered)
        self._evict()
        return rendered

    def _evict(self) -> None:
        for key, future in list(self._kept.items()):
            if self._size_bytes <= self._max_bytes:
                return
            if future.done():
                del self._kept[key]
                self._size_bytes -= _size_bytes(future.result())


def _size_bytes(rendered: Rendered) -> int:
    images = ((rendered.get("features") or {}).get("kwargs_data") or {}).get("image", [])
    return sum(len(item) for item in images)
