"""A value from the command line, read as the field that it is for wants it."""

from __future__ import annotations

import re
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

TEXT, DATE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp"
WHOLE = r"[-+]?(0|[1-9][0-9]*)"
PLAIN = {
    "null": r"null",
    "bool": r"true|false",
    "int": WHOLE,
    "float": rf"({WHOLE}(\.[0-9]*)?|[-+]?\.[0-9]+)([eE][-+]?[0-9]+)?",
}
"""What a bare word can be besides a text: JSON's words and numbers, and a number that begins or ends with its point."""


class Ambiguous(ValueError):
    """A value that readers of YAML disagree on, for a place that takes anything."""


class _Loader(yaml.SafeLoader):
    """YAML whose bare words mean what they mean in JSON; YAML 1.1 reads many more as something else than texts."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own attribute

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        tag = super().resolve(kind, value, implicit)
        if kind is yaml.ScalarNode and implicit[0] and tag == TEXT and _tag_of_yaml_1_1(value) not in (TEXT, DATE):
            raise Ambiguous(value)
        return tag


for _kind, _pattern in PLAIN.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"^({_pattern})$"), None)


def typed(text: str, path: str, settings: type[BaseModel]) -> Any:
    """The value of ``path`` that ``text`` stands for.

    A field of texts gets the text itself, whatever it looks like. Raises Ambiguous where anything is taken and the
    text may be a text or something else.
    """
    value, doubt = _read(text)
    fields = _fields(settings, path.split("."))
    if not doubt and (not fields or any(_fits(value, field) for field in fields)):
        return value
    if any(field is not Any and _fits(text, field) for field in fields):
        return text
    if doubt:
        raise Ambiguous(
            f"{path}={text}: {doubt} may be a text or something else; write a text in double quotes, anything else as "
            "in JSON (true, null, 1000)"
        )
    return value


def _read(text: str) -> tuple[Any, str]:
    """The value as YAML, and what of it is in doubt."""
    try:
        # The loader is a SafeLoader.
        value = yaml.load(text, _Loader)
    except Ambiguous as doubt:
        return text, str(doubt)
    except yaml.YAMLError:
        return text, ""
    is_bare = isinstance(value, str) and text[:1] not in ('"', "'")
    return (text if is_bare or (value is None and text != "null") else value), ""


def _fits(value: Any, field: Any) -> bool:
    try:
        TypeAdapter(field).validate_python(value)
    except ValidationError:
        return False
    return True


def _fields(kind: Any, path: list[str]) -> list[Any]:
    """Types that the end of the path may have: more than one where a union's members share the name."""
    if get_origin(kind) is Annotated:
        return _fields(get_args(kind)[0], path)
    if not path:
        return [kind]
    if get_origin(kind) in (Union, UnionType):
        return [field for member in get_args(kind) for field in _fields(member, path)]
    if get_origin(kind) is dict:
        return _fields(get_args(kind)[1], path[1:])
    if kind is Any:
        return [Any]
    if isinstance(kind, type) and issubclass(kind, BaseModel) and path[0] in kind.model_fields:
        return _fields(kind.model_fields[path[0]].annotation, path[1:])
    return []


def _tag_of_yaml_1_1(value: str) -> str:
    known = yaml.SafeLoader.yaml_implicit_resolvers
    for tag, pattern in [*known.get(value[:1], []), *known.get(None, [])]:
        if pattern.match(value):
            return tag
    return TEXT
