"""An OpenAI-compatible endpoint over HTTP: the model list and chat with pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import requests
from urllib3 import Retry

from serving.door import API_KEY_VARIABLE
from tasks.clients.retry import PATIENT, patient_session
from tasks.errors import ContextExceeded, EndpointFailed, ModelNotServed

_TOO_LONG = re.compile(r"maximum context length|maximum model length|context_length_exceeded")
"""How vLLM (renderers/params.py, v1/engine/input_processor.py) and OpenAI refuse a conversation for its length."""


@dataclass(frozen=True)
class Reply:
    """One chat answer."""

    model: str
    """Which model the endpoint says has answered."""
    text: str
    token_logprobs: tuple[float, ...]
    """Log-probability of each generated token; empty unless asked for."""


class ChatEndpoint:
    """``url`` is the address before ``/v1``. One per thread: it keeps a connection until it is closed.

    An API key comes from the environment, as the endpoint's own does: MAZE_ENDPOINT_API_KEY.
    """

    def __init__(self, url: str, timeout_s: float = 120.0, retry: Retry = PATIENT) -> None:
        self._url, self._timeout_s = url.rstrip("/"), timeout_s
        self._session = patient_session(retry)
        if key := os.environ.get(API_KEY_VARIABLE):
            self._session.headers["Authorization"] = f"Bearer {key}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._session.close()

    def model_ids(self) -> list[str]:
        """Everything that the endpoint lists."""
        return [entry["id"] for entry in self._request("GET", "/v1/models")["data"]]

    def lists(self, model: str) -> bool:
        """Whether the endpoint has this one model; it is asked for it alone, however many there are."""
        try:
            return self._request("GET", f"/v1/models/{quote(model, safe='')}").get("id") == model
        except ModelNotServed:
            return False

    def chat(
        self, model: str, messages: Sequence[object], max_tokens: int, temperature: float = 0.0, logprobs: bool = False
    ) -> Reply:
        """One answer; raises ModelNotServed, ContextExceeded, or EndpointFailed with the server's own words."""
        body = {
            "model": model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "logprobs": logprobs,
        }
        return _reply(self._url, self._request("POST", "/v1/chat/completions", json=body))

    def _request(self, method: str, path: str, **kwargs: Any) -> Any:
        try:
            response = self._session.request(method, self._url + path, timeout=self._timeout_s, **kwargs)
        except requests.RequestException as error:
            raise EndpointFailed(
                f"{self._url}{path} does not answer ({error}); is the Serve application up?"
            ) from error
        said = f"{self._url}{path} answered {response.status_code}: {response.text[:1000]}"
        if response.status_code == 404:
            raise ModelNotServed(f"{self._url}{path}: {response.text[:500]}; published names are listed at /v1/models")
        if response.status_code == 400 and _TOO_LONG.search(response.text):
            raise ContextExceeded(said)
        if not response.ok:
            raise EndpointFailed(said)
        try:
            return response.json()
        except requests.JSONDecodeError as error:
            raise EndpointFailed(f"{said}; JSON was wanted: is this an OpenAI-compatible endpoint?") from error


def _reply(url: str, answer: Any) -> Reply:
    """Raises EndpointFailed where the answer lacks what an OpenAI-compatible one has."""
    try:
        choice = answer["choices"][0]
        content = (choice.get("logprobs") or {}).get("content") or []
        logprobs = tuple(token["logprob"] for token in content)
        return Reply(answer["model"], choice["message"]["content"] or "", logprobs)
    except (KeyError, IndexError, TypeError) as error:
        raise EndpointFailed(
            f"{url}: a chat was answered without {error}: {str(answer)[:500]}; who answered and what it said was "
            "wanted, as in OpenAI's chat completions"
        ) from error
