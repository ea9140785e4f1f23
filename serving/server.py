"""The replica: Ray Serve LLM's own, but an adapter is loaded once, however many ask for it at the same time.

LLMServer (Ray 2.60) looks whether an adapter is loaded and loads it, without a lock in between: of sixteen requests
that arrive together for a new adapter, all but the first fail with "has already been loaded".
"""

from __future__ import annotations

from typing import Any

from ray import serve
from ray.serve.llm.deployment import LLMServer

from serving.names import NamedLocks


class AdapterServer(LLMServer):
    """LLMServer whose first requests for an adapter wait for each other."""

    async def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._loading = NamedLocks()
        await super().__init__(*args, **kwargs)

    async def _maybe_resolve_lora_from_multiplex(self) -> None:
        async with self._loading.held(serve.get_multiplexed_model_id()):
            await super()._maybe_resolve_lora_from_multiplex()
