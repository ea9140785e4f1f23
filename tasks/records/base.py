"""What every record is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Frozen and strict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def in_words(self) -> str:
        """What a stage found, in a few words; empty where its name says it all."""
        return ""


class Check(Record):
    """One thing that the run relies on."""

    name: str
    holds: bool
    found: str
    remedy: str = ""
    """What to do where it does not hold."""
