"""The endpoint's front: Ray Serve LLM's own, and one name more, ``<base>:champion``.

Adapter names are immutable, because replicas cache by name. The name that clients keep is resolved here instead, at
each request, from one small object in S3: promotion and rollback rewrite that object and nothing is deployed again.
The reply's ``model`` field names the adapter that answered.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import boto3
from botocore.exceptions import ClientError
from fastapi import HTTPException
from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress

from serving.app import CHAMPION

MAX_AGE_S = 2.0
"""How long a resolved name may be used again."""


class ChampionIngress(OpenAiIngress):
    """OpenAiIngress that knows who the champion is."""

    def __init__(self, *args: Any, champion_uri: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._champion = ChampionPointer(boto3.client("s3"), champion_uri)

    async def _get_response(self, *, body: Any, call_method: str, raw_request: Any = None) -> AsyncGenerator[Any, None]:
        base, colon, adapter = (body.model or "").partition(":")
        if colon and adapter == CHAMPION:
            body = body.model_copy(update={"model": f"{base}:{self._champion.adapter_name()}"})
        async for response in super()._get_response(body=body, call_method=call_method, raw_request=raw_request):
            yield response


class ChampionPointer:
    """Reads ``{"adapter_name": ...}`` from S3, at most every MAX_AGE_S seconds."""

    def __init__(self, s3: Any, uri: str) -> None:
        self._s3 = s3
        self._bucket, _, self._key = uri.removeprefix("s3://").partition("/")
        self._name, self._read_at = "", -MAX_AGE_S

    def adapter_name(self) -> str:
        """The champion's adapter; raises a 404 when nothing was promoted yet."""
        if time.monotonic() - self._read_at >= MAX_AGE_S:
            self._name, self._read_at = self._read(), time.monotonic()
        return self._name

    def _read(self) -> str:
        try:
            document = self._s3.get_object(Bucket=self._bucket, Key=self._key)["Body"].read()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in ("NoSuchKey", "404"):
                raise
            raise HTTPException(
                404, "no adapter was promoted yet, so there is no champion; ask for the base"
            ) from error
        return str(json.loads(document)["adapter_name"])
