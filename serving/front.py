"""Ray Serve LLM's application behind a door of our own: what comes in is checked, what goes wrong is said in OpenAI's
words.

Ray's own FastAPI application (2.60) answers errors with "Internal exception: ..., original exception: ..." and lets
any web page ask (CORS for every origin, with credentials). Made here, it has neither; and only what this model can do
has an address.
"""

from __future__ import annotations

import json
import logging
import os
import re
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from ray import serve
from ray.exceptions import RayTaskError
from ray.llm._internal.serve.core.configs.openai_api_models import OpenAIHTTPException, to_model_metadata
from ray.llm._internal.serve.core.ingress.ingress import DEFAULT_ENDPOINTS
from ray.llm._internal.serve.core.ingress.middleware import SetRequestIdMiddleware
from ray.llm._internal.serve.observability.metrics.fast_api_metrics import (
    add_http_metrics_middleware,
    metrics_lifespan,
)
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.llm import LLMServingArgs, build_llm_deployment
from ray.serve.llm.ingress import make_fastapi_ingress
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import JSONResponse
from vllm.exceptions import VLLMClientError

from serving.door import API_KEY_VARIABLE, Refused, check_key, check_name, check_request, error_body
from serving.settings import DoorSettings

ENDPOINTS = ("models", "model_data", "completions", "chat", "tokenize", "detokenize")
UNAVAILABLE = (BackPressureError, DeploymentUnavailableError)
"""More requests than fit, or no replica that could take one."""
log = logging.getLogger("ray.serve")


def build_app(args: dict[str, Any]) -> serve.Application:
    """As ``ray.serve.llm:build_openai_app`` builds it; ``door`` is what the endpoint takes."""
    limits, max_images = DoorSettings.model_validate(args["door"]), args["max_images"]
    parsed = LLMServingArgs.model_validate({k: v for k, v in args.items() if k not in ("door", "max_images")})
    configs: list[Any] = list(parsed.llm_configs)
    front: Any = parsed.ingress_cls_config
    options = front.ingress_cls.get_deployment_options(configs)
    # A fixed number of replicas and Ray's autoscaling exclude each other.
    options = {**{k: v for k, v in options.items() if k != "autoscaling_config"}, **parsed.ingress_deployment_config}
    deployment: Any = serve.deployment(ingress(front.ingress_cls, limits, max_images), **options)
    return deployment.bind(
        llm_deployments={config.model_id: build_llm_deployment(config) for config in configs},
        model_cards={config.model_id: to_model_metadata(config.model_id, config) for config in configs},
        lora_paths={config.model_id: config.lora_config.dynamic_lora_loading_path for config in configs},
        **front.ingress_extra_kwargs,
    )


def ingress(cls: type, limits: DoorSettings, max_images: int) -> Any:
    """The deployment's class with its routes, behind the door."""
    app = Answering(lifespan=metrics_lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    for error in (StarletteHTTPException, RequestValidationError, *UNAVAILABLE):
        app.add_exception_handler(error, said)
    # Added first runs innermost.
    add_http_metrics_middleware(app)
    app.add_middleware(Door, limits=limits, max_images=max_images)
    app.add_middleware(SetRequestIdMiddleware)
    return make_fastapi_ingress(cls, endpoint_map={name: DEFAULT_ENDPOINTS[name] for name in ENDPOINTS}, app=app)


class Answering(FastAPI):
    """Keeps our words for what Serve answers in its own: it adds its handlers when a replica starts (Ray 2.60,
    serve/_private/replica.py), and the last one would count."""

    def add_exception_handler(self, exc_class_or_status_code: Any, handler: Any) -> None:
        if exc_class_or_status_code not in UNAVAILABLE or exc_class_or_status_code not in self.exception_handlers:
            super().add_exception_handler(exc_class_or_status_code, handler)


class Door:
    """ASGI middleware: refuses what may not come in, and words whatever went wrong inside."""

    def __init__(self, app: Any, limits: DoorSettings, max_images: int) -> None:
        self._app, self._limits, self._max_images = app, limits, max_images

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun = False

        async def sends(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            body = await self._checked(scope, receive)
            await self._app(scope, receive if body is None else replayed(body, receive), sends)
        except Exception as error:
            if begun:
                raise
            await answer(error, scope.get("state", {}).get("request_id", ""))(scope, receive, send)

    async def _checked(self, scope: Any, receive: Any) -> bytes | None:
        """The request's body where it has one; raises Refused."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if key := os.environ.get(API_KEY_VARIABLE):
            check_key(key, headers.get("authorization", ""))
        if scope["path"].startswith("/v1/models/"):
            check_name(scope["path"].removeprefix("/v1/models/"))
        if scope["method"] != "POST":
            return None
        body = await read(receive, int(self._limits.max_request_mb * 1e6))
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Refused("the request's body is not JSON") from error
        check_request(document, self._limits, self._max_images)
        return body


async def read(receive: Any, most_bytes: int) -> bytes:
    """The whole body; raises Refused as soon as it is too large."""
    parts, size_bytes, more = [], 0, True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        size_bytes += len(parts[-1])
        if size_bytes > most_bytes:
            raise Refused(f"the request is larger than {most_bytes} bytes", status=413)
        more = message.get("more_body", False)
    return b"".join(parts)


def replayed(body: bytes, receive: Any) -> Any:
    """A ``receive`` that hands out what was read, then goes on."""
    messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receives() -> Any:
        return messages.pop() if messages else await receive()

    return receives


async def said(request: Any, error: Exception) -> JSONResponse:
    """FastAPI's own errors, in the same words."""
    return answer(error, getattr(request.state, "request_id", ""))


def answer(error: Exception, request_id: str) -> JSONResponse:
    """What the client is told. What is no client's business is logged under the request's id."""
    status, message, param, code = worded(error)
    if status >= 500:
        log.error("request %s failed", request_id, exc_info=error)
        message = f"{message} (request {request_id})"
    return JSONResponse(error_body(status, message, param, code), status)


def worded(error: Exception) -> tuple[int, str, str | None, str | None]:
    """Status, message, parameter and code of an error."""
    cause = error.cause if isinstance(error, RayTaskError) and isinstance(error.cause, Exception) else error
    if isinstance(cause, Refused):
        return cause.status, str(cause), cause.param, cause.code
    if isinstance(cause, RequestValidationError):
        return 400, *first_fault(cause), None
    if isinstance(cause, (HTTPException, StarletteHTTPException)):
        return cause.status_code, clean(str(cause.detail)), None, "not_found" if cause.status_code == 404 else None
    if isinstance(cause, OpenAIHTTPException) and cause.status_code != 500:
        return cause.status_code, clean(cause.message), None, None
    if isinstance(cause, VLLMClientError):
        return 400, clean(str(cause)), None, None
    if isinstance(cause, UNAVAILABLE):
        return 503, "the endpoint cannot take more requests now; try again", None, "overloaded"
    return 500, "the endpoint could not answer; its log says why", None, None


def first_fault(error: RequestValidationError) -> tuple[str, str | None]:
    """The first thing that is wrong, and where; pydantic names its classes in the path of a union."""
    fault = error.errors()[0]
    place = [str(part) for part in fault["loc"] if part != "body" and (isinstance(part, int) or part.islower())]
    param = ".".join(place)
    return clean(f"{param}: {fault['msg']}" if param else fault["msg"]), param or None


def clean(message: str) -> str:
    """Without what is no client's business: addresses of objects, exceptions' names in front, where the store is."""
    message = re.sub(r"s3://\S*/", "", message)
    return re.sub(r"^(\w+\.)*\w+(Error|Exception): ", "", re.sub(r"<[^<>]* object at 0x[0-9a-f]+>", "it", message))
