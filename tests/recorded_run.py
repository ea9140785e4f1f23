"""A real training job's events (tests/recorded), told again."""

from __future__ import annotations

import gzip
from pathlib import Path

from rl.events import PREFIX, Event, parse_line
from rl.grpo.settings import TrainJob

HERE = Path(__file__).with_name("recorded")


def recorded_order() -> TrainJob:
    """What it was asked."""
    return TrainJob.model_validate_json((HERE / "train_job.json").read_text())


def recorded_lines() -> list[str]:
    """Its log's events, with what the job tells once more at its end (rl/events.py)."""
    lines = [
        PREFIX + line for line in gzip.decompress((HERE / "training.events.jsonl.gz").read_bytes()).decode().split("\n")
    ]
    told = [line for line in lines if line != PREFIX]
    again = [line for line in told if event_of(line).kind in ("metrics", "evaluated", "checkpoint", "export")]
    return [*told, *again]


def event_of(line: str) -> Event:
    found = parse_line(line)
    assert found is not None, line[:80]
    return found
