"""Token generation that sends a picture's pixels once, not again on every later turn of its conversation.

A request names every picture of the conversation so far. Pixels are most of it: the patches of one 72x56 px maze are
129 kB in base64, so the fifteenth turn of stock rollouts posts 1.9 MB of JSON for four tokens of reply. vLLM keeps what
it was sent under the picture's hash (``mm_processor_cache_gb``) and takes an item without data for it (``kwargs_data``
of ``/inference/v1/generate``). A picture that it no longer has it refuses with a 500; then everything goes out again.
"""

from __future__ import annotations

import logging
from typing import Any

import aiohttp

Pictures = dict[str, list[Any]]
"""``mm_hashes``, ``mm_placeholders`` and ``kwargs_data`` of a conversation's pictures, in order, equally long."""
_CACHE_MISS_STATUS = 500

logger = logging.getLogger(__name__)


class PicturesOnce:
    """Sends each picture's data once to the engine that a session is routed to.

    Args:
        engine: SkyRL's RemoteGenerateClient, or what generates as it does.
        num_engines: engines behind it. Sessions stay with one engine (the router hashes their id): a single engine
            knows what any session has sent, of several each session can count on its own pictures only.
    """

    def __init__(self, engine: Any, num_engines: int) -> None:
        self._engine, self._num_engines = engine, num_engines
        self._known: dict[str, set[str]] = {}
        self.num_refused = 0
        """Requests that the engine wanted again with all pictures."""

    def forget(self, session_id: str | None = None) -> None:
        """Forget one session, or everything: the engine may have let go of what older batches sent."""
        if session_id is None:
            self._known.clear()
        elif self._num_engines > 1:
            self._known.pop(session_id, None)

    async def generate(self, *, session_id: str, pictures: Pictures, **request: Any) -> Any:
        """One reply to the prompt and its pictures. Raises what the engine raises to a request with everything."""
        key = "" if self._num_engines == 1 else session_id
        known = self._known.setdefault(key, set())
        told = [hash_ in known for hash_ in pictures["mm_hashes"]]
        try:
            result = await self._send(session_id, _without(pictures, told), request)
        except aiohttp.ClientResponseError as error:
            if error.status != _CACHE_MISS_STATUS or not any(told):
                raise
            self.num_refused += 1
            known.clear()
            logger.warning("the engine wants pictures again that it was sent before (request %d)", self.num_refused)
            result = await self._send(session_id, pictures, request)
        # Known only from here on: a request without data must not overtake the one that carries it.
        known.update(pictures["mm_hashes"])
        return result

    async def _send(self, session_id: str, pictures: Pictures, request: dict[str, Any]) -> Any:
        features = {name: {"image": items} for name, items in pictures.items()}
        return await self._engine.generate(session_id=session_id, mm_features=features, **request)


def _without(pictures: Pictures, told: list[bool]) -> Pictures:
    data = [None if known else item for known, item in zip(told, pictures["kwargs_data"], strict=True)]
    return {**pictures, "kwargs_data": data}
