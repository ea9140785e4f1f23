"""Hypothesis without its time limit for an example: on a busy machine that fails tests which are right."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("busy-machine", deadline=None)
settings.load_profile("busy-machine")
