"""``key=value`` of the command line, and what is wrong with it in plain words."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from flows.cli.typed import typed


class BadKnob(ValueError):
    """What was typed cannot be run; one line for each reason."""


def overrides_of(settings: type[BaseModel], arguments: Sequence[str]) -> dict[str, Any]:
    """``key.path=value`` of a deployment's settings, each value typed by its field; raises BadKnob, Ambiguous."""
    overrides = dict[str, Any]()
    for argument in arguments:
        path, sign, text = argument.partition("=")
        if not sign:
            raise BadKnob(f"{argument!r} is no key=value; name a knob and its value, such as max_steps=4")
        overrides[path] = typed(text, path, settings)
    return overrides


def refusal(error: ValidationError, settings: type[BaseModel], typed_paths: Sequence[str]) -> BadKnob:
    """One line for each field, in plain words."""
    return BadKnob("\n".join(dict.fromkeys(_line(found, settings, typed_paths) for found in error.errors())))


def _line(found: Mapping[str, Any], settings: type[BaseModel], typed_paths: Sequence[str]) -> str:
    path = ".".join(str(part) for part in found["loc"])
    name = next((typed for typed in typed_paths if path == typed or path.endswith(f".{typed}")), path)
    said = _words(found, settings)
    return f"{name}: {said}" if name else said


def _words(found: Mapping[str, Any], settings: type[BaseModel]) -> str:
    given, limits = found.get("input"), found.get("ctx", {})
    wanted = {
        "greater_than_equal": "at least {ge}",
        "greater_than": "more than {gt}",
        "less_than_equal": "at most {le}",
        "less_than": "less than {lt}",
        "literal_error": "one of {expected}",
        "int_type": "a whole number",
        "int_parsing": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "float_parsing": "a number",
        "bool_type": "true or false",
        "bool_parsing": "true or false",
        "string_type": "a text",
    }.get(found["type"])
    if wanted:
        return f"{given!r} was given, {wanted.format(**limits)} is wanted"
    match found["type"]:
        case "extra_forbidden":
            return "there is no such setting" + _close_to(found["loc"], settings)
        case "missing":
            return "a value is missing"
        case _:
            return str(found["msg"]).removeprefix("Value error, ")


def _close_to(path: Sequence[int | str], settings: type[BaseModel]) -> str:
    """Fields beside the unknown one that it may have been meant for."""
    beside: Any = settings
    # The first part may be the flow's parameter that takes the settings.
    for part in path[path[0] not in settings.model_fields : -1]:
        fields = getattr(beside, "model_fields", {})
        beside = fields[part].annotation if part in fields else None
    names = list(getattr(beside, "model_fields", {}))
    close = difflib.get_close_matches(str(path[-1]), names, n=1)
    if close:
        return f"; was {close[0]} meant?"
    return f"; there are {', '.join(names)}" if names and len(names) <= 20 else ""
