"""Asks the endpoint's front in the serving environment, without a replica: ``ask_ingress.py CHAMPION_URI ASKED...``.

``models`` asks for the list, ``model ID`` for one, ``chat ID`` for an answer. Prints what each gets, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from fastapi import HTTPException
from ray.llm._internal.serve.core.configs.openai_api_models import ModelCard

from serving.ingress import ChampionIngress

BASE = "tiny"


class Replicas:
    """A deployment's handle (ray.serve.handle): notes for which model it was asked."""

    def __init__(self, model_id: str = "") -> None:
        self.model_id = model_id
        self.chat = SimpleNamespace(remote=self.answer)

    def options(self, stream: bool, multiplexed_model_id: str = "") -> Replicas:
        return Replicas(multiplexed_model_id)

    async def answer(self, body: Any, request: Any) -> AsyncIterator[str]:
        yield f"{body.model} by a replica with {self.model_id or 'the base'}"


async def answer(ingress: ChampionIngress, verb: str, model: str) -> Any:
    try:
        if verb == "models":
            return [card.model_dump() for card in (await ingress.models()).data]
        if verb == "model":
            card = await ingress.model(model)
            return card and card.model_dump()
        body = Body(model=model)
        return [part async for part in ingress._get_response(body=body, call_method="chat")]
    except HTTPException as error:
        return {"status": error.status_code, "detail": error.detail}


class Body(SimpleNamespace):
    def model_copy(self, update: dict[str, Any]) -> Body:
        return Body(**{**vars(self), **update})


async def main(champion_uri: str, asked: list[str]) -> None:
    card = ModelCard(id=BASE, object="model", owned_by="us", permission=[], metadata={"engine": "vllm"})
    path = champion_uri.removesuffix(".champion.json")
    ingress = ChampionIngress({BASE: Replicas()}, {BASE: card}, lora_paths={BASE: path}, champion_uri=champion_uri)  # type: ignore[dict-item]
    answers = {}
    for request in asked:
        verb, _, model = request.partition(" ")
        answers[request] = await answer(ingress, verb, model)
    for number in range(1000):
        await answer(ingress, "chat", f"{BASE}:nobody-{number}")
    answers["handles"] = len(ingress._configured_serve_handles)
    print(json.dumps(answers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
