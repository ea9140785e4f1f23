"""``key=value`` of the command line."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from flows.cli.services import BadKnob
from flows.cli.typed import typed
from flows.deployments import place_of, settings_type


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
