"""An OpenAI-compatible endpoint over HTTP: the model list and chat with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import requests

from tasks.errors import EndpointFailed, ModelNotServed


@dataclass(frozen=True)
class Reply:
    """One chat answer."""

    model: str
    """Which model the endpoint says has answered."""
    text: str
    token_logprobs: tuple[float, ...]
    """Log-probability of each generated token; empty unless asked for."""


class ChatEndpoint:
    """``url`` is the address before ``/v1``. One per thread: it keeps a connection."""

    def __init__(self, url: str, timeout_s: float = 120.0) -> None:
        self._url, self._timeout_s = url.rstrip("/"), timeout_s
        self._session = requests.Session()

    def model_ids(self) -> list[str]:
        """Everything that the endpoint lists."""
        return [entry["id"] for entry in self._request("GET", "/v1/models")["data"]]

    def chat(
        self, model: str, messages: Sequence[object], max_tokens: int, temperature: float = 0.0, logprobs: bool = False
    ) -> Reply:
        """One answer; raises ModelNotServed, or EndpointFailed with the server's own words."""
        body = {
            "model": model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "logprobs": logprobs,
        }
        answer = self._request("POST", "/v1/chat/completions", json=body)
        choice = answer["choices"][0]
        content = (choice.get("logprobs") or {}).get("content") or []
        return Reply(answer["model"], choice["message"]["content"] or "", tuple(t["logprob"] for t in content))

    def _request(self, method: str, path: str, **kwargs: Any) -> Any:
        try:
            response = self._session.request(method, self._url + path, timeout=self._timeout_s, **kwargs)
        except requests.RequestException as error:
            raise EndpointFailed(
                f"{self._url}{path} does not answer ({error}); is the Serve application up?"
            ) from error
        if response.status_code == 404:
            raise ModelNotServed(f"{self._url}{path}: {response.text[:500]}; published names are listed at /v1/models")
        if not response.ok:
            raise EndpointFailed(f"{self._url}{path} answered {response.status_code}: {response.text[:1000]}")
        return response.json()
