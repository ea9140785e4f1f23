"""What a request to the endpoint may hold, looked at before anything of it is fetched, decoded or computed.

vLLM has the same limits further in, where they are set too (``serving/app.py``); its ``allowed_media_domains`` lets
everything through while it is empty, and its refusals name its own classes. Nothing of Ray or vLLM is imported.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

from serving.settings import DoorSettings

API_KEY_VARIABLE = "MAZE_ENDPOINT_API_KEY"
"""Where set, in the endpoint's environment, clients must bring it; where unset, everybody may ask."""
FORMATS = ("PNG", "JPEG", "WEBP")
"""Pictures that are read; Pillow knows forty more formats, some of them programs."""
MODEL_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}(:[A-Za-z0-9_-][A-Za-z0-9_.-]{0,255})?")
PARTS = {"text": {"type", "text"}, "refusal": {"type", "refusal"}, "image_url": {"type", "image_url"}}
"""Kinds of content -> the fields that such a part may have. vLLM takes a dozen others, each a way to bring data in."""
NEVER = ("media_io_kwargs", "mm_processor_kwargs", "prompt_embeds", "chat_template")
"""How a request would change how pictures are read, or bring weights or programs in place of words."""


class Refused(ValueError):
    """The request is not taken; the message is for the client."""

    def __init__(self, message: str, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code


def error_body(status: int, message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """An error as OpenAI words it: https://platform.openai.com/docs/guides/error-codes."""
    kind = "server_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def check_key(wanted: str, authorization: str) -> None:
    """``Bearer <key>``, compared in constant time; raises Refused."""
    if not hmac.compare_digest(authorization.encode(), f"Bearer {wanted}".encode()):
        raise Refused(
            "this endpoint wants an API key: send 'Authorization: Bearer <key>'", status=401, code="invalid_api_key"
        )


def check_name(model: object) -> None:
    """A base model's or an adapter's name; it becomes part of paths. Raises Refused."""
    if not isinstance(model, str) or not MODEL_NAME.fullmatch(model) or ".." in model:
        raise Refused("that is no model's name; /v1/models lists them", param="model", code="invalid_model_name")


def check_request(body: object, limits: DoorSettings, max_images: int) -> None:
    """The JSON of a POST; raises Refused."""
    if not isinstance(body, Mapping):
        raise Refused("the request's body must be a JSON object")
    if body.get("model") is not None:
        check_name(body["model"])
    for field in NEVER:
        if body.get(field) is not None:
            raise Refused(f"{field} cannot be set by a request", param=field)
    pictures = list(_pictures(body.get("messages")))
    if len(pictures) > max_images:
        raise Refused(f"{len(pictures)} pictures; at most {max_images} are taken in one conversation", param="messages")
    for param, url in pictures:
        check_picture(url, param, limits)


def _pictures(messages: object) -> Iterator[tuple[str, object]]:
    """Where each picture's address stands, and the address. Raises Refused for content of another kind."""
    for number, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, Mapping) else None
        for place, part in enumerate(content if isinstance(content, list) else ()):
            param = f"messages.{number}.content.{place}"
            if isinstance(part, str):
                continue
            kind = part.get("type") if isinstance(part, Mapping) else None
            if not isinstance(part, Mapping) or kind not in PARTS or not part.keys() <= PARTS[kind]:
                raise Refused("only text and image_url parts are taken, with no other fields", param=param)
            if kind == "image_url":
                address = part.get("image_url")
                yield param, address.get("url") if isinstance(address, Mapping) else address


def check_picture(url: object, param: str, limits: DoorSettings) -> None:
    """A ``data:`` address within the limits, or a web address of an allowed domain; raises Refused."""
    if not isinstance(url, str):
        raise Refused("a picture's address must be a text", param=param)
    if url[:5].lower() != "data:":
        return _check_domain(url, param, limits.allowed_media_domains)
    head, comma, data = url[5:].partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise Refused("a data: address must read data:image/<format>;base64,<data>", param=param)
    if len(data) * 3 / 4 > limits.max_image_mb * 1e6:
        raise Refused(f"the picture is larger than {limits.max_image_mb:g} MB", status=413, param=param)
    try:
        # Reads the header only; decoding is another call.
        width, height = Image.open(io.BytesIO(base64.b64decode(data, validate=True)), formats=FORMATS).size
    except binascii.Error as error:
        raise Refused("the picture's data is not base64", param=param) from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Refused(f"the picture cannot be read; {', '.join(FORMATS)} are taken", param=param) from error
    if width * height > limits.max_image_pixels:
        raise Refused(
            f"the picture has {width} x {height} pixels; at most {limits.max_image_pixels} are taken", param=param
        )


def _check_domain(url: str, param: str, allowed: tuple[str, ...]) -> None:
    try:
        address = urlsplit(url)
        fetched = address.scheme in ("http", "https") and address.username is None and address.hostname in allowed
    except ValueError:
        fetched = False
    if not fetched:
        raise Refused("a picture must be sent as data:image/<format>;base64,<data>", param=param)
