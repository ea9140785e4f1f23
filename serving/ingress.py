"""The endpoint's front: Ray Serve LLM's own, and one name more, ``<base>:champion``.

Adapter names are immutable, because replicas cache by name. The name that clients keep is resolved here instead, at
each request, from one small object in S3: promotion and rollback rewrite that object and nothing is deployed again.
The reply's ``model`` field names the adapter that answered; in the model list, ``metadata.stands_for`` does.

The list is made of all pages of the store's listing, in a thread: Ray Serve LLM 2.60 lists one page, so that newest
names are missing from the 1,001st adapter on, and reads every adapter's configuration with the event loop held.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from fastapi import HTTPException
from ray.llm._internal.serve.core.configs.openai_api_models import ModelCard, ModelList
from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress
from ray.util.metrics import Gauge

from serving.app import CHAMPION
from serving.names import Newest, Remembered, StoreAway, adapter_names, champion_name
from serving.store import BRISK, s3_client

MAX_HANDLES = 256
"""Names whose way to the replicas is kept; anybody may ask for any name."""


class ChampionIngress(OpenAiIngress):
    """OpenAiIngress that knows who the champion is, and all adapters."""

    def __init__(self, *args: Any, champion_uri: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        s3 = s3_client(BRISK)
        age_s = Gauge("maze_champion_name_age_s", "Seconds since the store last said who is champion.")
        self._champion = Remembered(champion_name(s3, champion_uri), lambda seconds: age_s.set(seconds))
        self._adapters = {base: Remembered(adapter_names(s3, path)) for base, path in self._lora_paths.items()}
        self._configured_serve_handles = Newest(MAX_HANDLES)

    async def _get_response(self, *, body: Any, call_method: str, raw_request: Any = None) -> AsyncGenerator[Any, None]:
        if is_champion(body.model or ""):
            body = body.model_copy(update={"model": await self._stands_for(body.model)})
        async for response in super()._get_response(body=body, call_method=call_method, raw_request=raw_request):
            yield response

    async def model(self, model_id: str) -> ModelCard | None:
        """One model's card; the champion's says whom it stands for. None, which becomes a 404, for an unknown name."""
        if not is_champion(model_id):
            return await super().model(model_id)
        base = model_id.partition(":")[0]
        return self._card(base, model_id, await self._stands_for(model_id)) if base in self._model_cards else None

    async def model_data(self, model: str) -> ModelCard:
        """One model's card, by the name as it was asked: Ray makes a slash of two dashes."""
        if card := await self.model(model):
            return card
        raise HTTPException(404, f"there is no model {model}; /v1/models lists them")

    async def models(self) -> ModelList:
        """Base models, every adapter that the store has, and the champion where there is one."""
        cards = []
        for base, card in self._model_cards.items():
            cards.append(card)
            if base not in self._adapters:
                continue
            cards += [self._card(base, f"{base}:{name}") for name in await self._known(self._adapters[base])]
            if champion := await self._known(self._champion):
                cards.append(self._card(base, f"{base}:{CHAMPION}", f"{base}:{champion}"))
        return ModelList(data=cards)

    async def _stands_for(self, model_id: str) -> str:
        """The adapter behind the champion's name; a 404 while nobody was promoted, a 503 where nobody knows."""
        name = await self._known(self._champion)
        if name is None:
            raise HTTPException(404, "no adapter was promoted yet, so there is no champion; ask for the base")
        return f"{model_id.partition(':')[0]}:{name}"

    async def _known[Found](self, remembered: Remembered[Found]) -> Found:
        try:
            return await remembered.get()
        except StoreAway as error:
            raise HTTPException(503, str(error)) from error

    def _card(self, base: str, model_id: str, stands_for: str = "") -> ModelCard:
        """As OpenAiIngress makes an adapter's, without asking for each one's configuration."""
        card, adapter = self._model_cards[base], stands_for or model_id
        metadata = {
            **card.metadata,
            "model_id": model_id,
            "base_model_id": base,
            "bucket_uri": f"{self._lora_paths[base]}/{adapter.partition(':')[2]}",
            **({"stands_for": stands_for} if stands_for else {}),
        }
        return ModelCard(
            id=model_id, object="model", owned_by=card.owned_by, permission=list(card.permission), metadata=metadata
        )


def is_champion(model_id: str) -> bool:
    return model_id.partition(":")[2] == CHAMPION
