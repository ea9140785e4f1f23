"""A flow's settings in two parts: knobs, which a person sets, and the platform, which the deployment brings.

In Prefect's form the knobs are fields and the platform is one piece of JSON. Its schema hides from the form, but
Prefect's server checks it all the same; together both parts are validated by the flow's one settings model.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from flows.refusals import SettingsRefused, refused
from tasks.addresses import LOGIN_PATTERN, has_login
from tasks.settings import Settings

PLATFORM = (
    "Where and how it runs: images, clusters, addresses, engine. Comes with the deployment; leave it as it is. "
    "To see or change it: the three dots at the right, Use JSON input."
)


class InParts(Settings):
    """Settings that are put together from knobs and a platform."""

    knob_paths: ClassVar[Mapping[str, str]] = {}
    """Knob -> where it belongs in these settings."""
    knob_bounds: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Knob -> JSON schema's keyword -> the platform's setting that bounds it."""

    @classmethod
    def of(cls, platform: Mapping[str, Any], knobs: Settings | None = None) -> Self:
        """The whole; raises SettingsRefused."""
        document = copy.deepcopy(dict(platform))
        if doubled := [told_for(path, cls.knob_paths) for path in cls.knob_paths.values() if _has(document, path)]:
            raise SettingsRefused(doubled)
        for name, value in knobs.model_dump().items() if knobs else ():
            put(document, cls.knob_paths[name], value)
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise refused(error, cls, {path: name for name, path in cls.knob_paths.items()}) from None


@dataclass(frozen=True)
class PlatformOf:
    """Marks a flow's parameter as the platform of these settings."""

    whole: type[InParts]

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """To a form a choice of one thing without fields; to a validator ``then`` holds always.

        Of a plain object without fields Prefect's second UI opens the whole JSON, 4000 px of it.
        """
        closed = {"type": "object", "title": "As deployed", "properties": {}}
        hidden = {"if": {}, "then": platform_schema(self.whole)}
        return {"title": "Platform", "description": PLATFORM, "anyOf": [closed], **hidden}


def platform_schema(whole: type[InParts]) -> dict[str, Any]:
    """JSON schema of the settings without the knobs, each definition in its place."""
    document = whole.model_json_schema()
    schema = _inlined(document, document.get("$defs", {}))
    for path in whole.knob_paths.values():
        *parents, last = path.split(".")
        place = schema
        for key in parents:
            place = place["properties"][key]
        del place["properties"][last]
        place["required"] = [name for name in place.get("required", []) if name != last]
    return schema


def bounds(whole: type[InParts], platform: Mapping[str, Any]) -> list[dict[str, Any]]:
    """JSON schemas of a deployment's parameters, in which its platform bounds its knobs.

    Each holds as long as the platform's setting is this deployment's, so that whoever sets both is not refused.
    """

    def within(path: str, schema: dict[str, Any]) -> dict[str, Any]:
        for key in reversed(path.split(".")):
            schema = {"properties": {key: schema}}
        return schema

    return [
        {
            "if": within(f"platform.{path}", {"const": at(platform, path)}),
            "then": within(f"knobs.{knob}", {keyword: at(platform, path)}),
        }
        for knob, bounded in whole.knob_bounds.items()
        for keyword, path in bounded.items()
    ]


def at(document: Mapping[str, Any], path: str) -> Any:
    """What a dotted path leads to."""
    found: Any = document
    for part in path.split("."):
        found = found[part]
    return found


def told_for(path: str, knob_paths: Mapping[str, str]) -> str:
    """What is said of a knob that is named by its place in the platform."""
    knob = next(name for name, place in knob_paths.items() if place == path)
    return f"platform.{path} is a knob: set {knob}"


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    # A discriminator is OpenAPI's, and a title or default of a form that nobody sees.
    plain = {key: _inlined(part, definitions) for key, part in schema.items() if key not in ("$defs", "discriminator")}
    # Refused by Prefect's server, which would keep it with the flow run otherwise.
    return (
        {**plain, "allOf": [{"pattern": rf"^(?![\s\S]*{LOGIN_PATTERN})"}]} if schema.get("type") == "string" else plain
    )


def _has(document: Any, path: str) -> bool:
    for key in path.split("."):
        if not isinstance(document, dict) or key not in document:
            return False
        document = document[key]
    return True


def put(document: dict[str, Any], path: str, value: Any) -> None:
    """Set what a dotted path names; raises SettingsRefused where it leads below something that has no parts."""
    *parents, last = path.split(".")
    place: Any = document
    for key in parents:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            given = "an address" if has_login(str(place)) else repr(place)
            raise SettingsRefused([f"platform.{path}: there is nothing below {given}"])
    place[last] = value
