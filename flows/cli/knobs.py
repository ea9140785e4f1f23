"""``key=value`` of the command line, and what is wrong with it in plain words."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from flows.cli.services import BadKnob
from flows.cli.typed import typed
from flows.deployments import place_of, settings_type
from flows.parts import InParts, SettingsRefused

WANTED = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "literal_error": "{expected}",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
}
"""What pydantic's kinds of errors ask for."""


def overrides_of(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """``key=value`` of a deployment's knobs and platform, each value typed by its field.

    Raises BadKnob, Ambiguous, or UnknownSetting, which names the knob that was meant.
    """
    settings, overrides = settings_type(name), dict[str, Any]()
    for argument in arguments:
        path, sign, text = argument.partition("=")
        if not sign:
            raise BadKnob(f"{argument!r} is no key=value; name a knob and its value, such as max_steps=4")
        close = difflib.get_close_matches(path, list(settings.knob_paths), n=1, cutoff=0.8)
        if close and close != [path]:
            raise BadKnob(f"{path}: there is no such knob; was {close[0]} meant?")
        part, inner = place_of(name, path)
        overrides[path] = typed(text, settings.knob_paths[inner] if part == "knobs" else inner, settings)
    return overrides


def refusal(error: SettingsRefused, settings: type[InParts]) -> BadKnob:
    """One line for each field, in plain words; the error's own where it holds no list of fields."""
    found = next((cause for cause in _causes(error) if isinstance(cause, ValidationError)), None)
    lines = [_line(fault, settings) for fault in found.errors()] if found else str(error).split("; ")
    return BadKnob("\n".join(dict.fromkeys(lines)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _line(fault: Mapping[str, Any], settings: type[InParts]) -> str:
    part, *inner = map(str, fault["loc"]) if fault["loc"] else [""]
    path = ".".join([part, *inner])
    knob = next((name for name, place in settings.knob_paths.items() if place == path), "")
    name = ".".join(inner) if part == "knobs" else knob or (f"platform.{path}" if path else "")
    said = _words(fault, settings)
    return f"{name}: {said}" if name else said


def _words(fault: Mapping[str, Any], settings: type[InParts]) -> str:
    if wanted := WANTED.get(fault["type"]):
        return f"{fault.get('input')!r} was given, {wanted.format(**fault.get('ctx', {}))} is wanted"
    match fault["type"]:
        case "extra_forbidden":
            return "there is no such setting" + _close_to(fault["loc"], settings)
        case "missing":
            return "a value is missing"
        case _:
            return str(fault["msg"]).removeprefix("Value error, ")


def _close_to(path: Sequence[int | str], settings: type[InParts]) -> str:
    """Fields beside the unknown one that it may have been meant for."""
    beside: Any = settings
    for part in path[:-1]:
        fields = getattr(beside, "model_fields", {})
        beside = fields[part].annotation if part in fields else None
    names = list(getattr(beside, "model_fields", {}))
    close = difflib.get_close_matches(str(path[-1]), names, n=1)
    if close:
        return f"; was {close[0]} meant?"
    return f"; there are {', '.join(names)}" if names and len(names) <= 20 else ""
