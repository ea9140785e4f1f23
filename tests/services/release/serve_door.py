"""The endpoint's front on a real Ray Serve, until its input ends: ``serve_door.py HTTP_PORT`` (serving environment).

Behind it stands a replica without a model. It fetches pictures by vLLM's own connector, with the engine's arguments,
and fails as it is told in the conversation's first text.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import ray
from ray import serve
from ray.llm._internal.serve.core.configs.openai_api_models import (
    ChatCompletionResponse,
    ErrorInfo,
    ErrorResponse,
    ModelCard,
)

from serving.app import queue_limits, serve_document
from serving.front import ingress
from serving.ingress import ChampionIngress
from serving.settings import DoorSettings
from tests.unit.samples import SERVER

CARD = ModelCard(id="tiny", object="model", owned_by="us", permission=[], metadata={"engine": "none"})


@serve.deployment
class Replica:
    """LLMServer's ``chat``: an iterator of answers, or of one error."""

    def __init__(self, allowed_media_domains: list[str]) -> None:
        from vllm.multimodal.media import MediaConnector

        self._media = MediaConnector(allowed_media_domains=allowed_media_domains)

    async def chat(self, body: Any, request: Any) -> AsyncIterator[Any]:
        text = ""
        for part in body.messages[0]["content"]:
            if part["type"] == "image_url":
                await self._media.fetch_image_async(part["image_url"]["url"])
            else:
                text = part["text"]
        if text == "too long":
            # As vLLM words it; tasks/release/openai_chat.py knows it by these words.
            message = "ValueError: the prompt is longer than the maximum model length of 2048; <a.B object at 0x7f00>"
            yield ErrorResponse(error=ErrorInfo(message=message, code=400, type="BadRequestError"))
        if text == "takes long":
            await asyncio.sleep(LONG_S)
        if text == "broken":
            raise RuntimeError("Cannot open /models/inside in ray.serve._private.replica.ServeReplica")
        yield ChatCompletionResponse.model_validate(
            {
                "model": body.model,
                "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "total_tokens": 2, "completion_tokens": 1},
            }
        )


SMALL = SERVER.model_copy(update={"max_num_seqs": 2})
"""Four requests are in its replica at a time, two wait before it."""
LONG_S = 5.0


def main(argv: list[str]) -> None:
    (application,) = serve_document(SMALL)["applications"]
    args = application["args"]
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    serve.start(http_options={"host": "127.0.0.1", "port": int(argv[1])})
    front = ingress(ChampionIngress, DoorSettings.model_validate(args["door"]), args["max_images"])
    replica = (
        cast(Any, Replica)
        .options(**queue_limits(SMALL))
        .bind(args["llm_configs"][0]["engine_kwargs"]["allowed_media_domains"])
    )
    serve.run(
        cast(Any, serve.deployment(front, num_replicas=1, max_ongoing_requests=1000)).bind(
            llm_deployments={"tiny": replica},
            model_cards={"tiny": CARD},
            lora_paths={"tiny": SERVER.adapters_uri},
            champion_uri=f"{SERVER.adapters_uri}.champion.json",
        )
    )
    print("ready", flush=True)
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv)
