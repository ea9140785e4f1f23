"""Why settings cannot work, in plain words: the same in a terminal and on Prefect's page."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

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


class SettingsRefused(ValueError):
    """Knobs and platform do not make settings that can work; each reason by the name that a person knows."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(dict.fromkeys(reasons))
        super().__init__("; ".join(self.reasons))


def refused(error: ValidationError, model: type[BaseModel], names: Mapping[str, str]) -> SettingsRefused:
    """What pydantic found wrong with ``model``; a path in ``names`` goes by its name, another is the platform's."""
    return SettingsRefused([_reason(fault, model, names) for fault in error.errors()])


def _reason(fault: ErrorDetails, model: type[BaseModel], names: Mapping[str, str]) -> str:
    path = ".".join(map(str, fault["loc"]))
    name = names.get(path, f"platform.{path}" if path else "")
    return f"{name}: {_words(fault, model)}" if name else _words(fault, model)


def _words(fault: ErrorDetails, model: type[BaseModel]) -> str:
    if wanted := WANTED.get(fault["type"]):
        return f"{fault['input']!r} was given, {wanted.format(**fault.get('ctx', {}))} is wanted"
    match fault["type"]:
        case "extra_forbidden":
            return "there is no such setting" + _close_to(fault["loc"], model)
        case "missing":
            return "a value is missing"
        case _:
            return fault["msg"].removeprefix("Value error, ")


def _close_to(path: Sequence[int | str], model: type[BaseModel]) -> str:
    """Fields beside the unknown one that it may have been meant for."""
    beside: Any = model
    for part in path[:-1]:
        fields = getattr(beside, "model_fields", {})
        beside = fields[part].annotation if part in fields else None
    names = list(getattr(beside, "model_fields", {}))
    close = difflib.get_close_matches(str(path[-1]), names, n=1)
    if close:
        return f"; was {close[0]} meant?"
    return f"; there are {', '.join(names)}" if names and len(names) <= 20 else ""
