"""What stages hand to each other: digests, steps, URIs and counts. Never a tag, never a live object."""

from __future__ import annotations

from rl.maze.score import EvalReport
from tasks.records.base import (
    Check,
    Record,
)
from tasks.records.judging import (
    ChampionChange,
    Comparison,
    Contest,
    Decision,
    Evaluations,
    JudgeSet,
    ServedRun,
    Standing,
    Verdict,
)
from tasks.records.serving import (
    Certificate,
    FinishedTraining,
    PublishedAdapter,
    ServedEndpoint,
    ServedModel,
    ServingSide,
    TrainingSide,
)
from tasks.records.training import (
    BestStep,
    ClusterRef,
    DiedJob,
    ExportRef,
    ImageRef,
    MazesRef,
    TrainedRun,
)

__all__ = [
    "BestStep",
    "Certificate",
    "ChampionChange",
    "Check",
    "ClusterRef",
    "Comparison",
    "Contest",
    "Decision",
    "DiedJob",
    "Evaluations",
    "ExportRef",
    "FinishedTraining",
    "ImageRef",
    "JudgeSet",
    "MazesRef",
    "PublishedAdapter",
    "Record",
    "ServedEndpoint",
    "ServedModel",
    "ServedRun",
    "ServingSide",
    "Standing",
    "TrainedRun",
    "TrainingSide",
    "Verdict",
    "in_words",
]


def in_words(found: object) -> str:
    """What a stage found, in a few words; empty where there is nothing to say."""
    match found:
        case Record():
            return found.in_words()
        case EvalReport():
            return f"{found.num_solved} of {found.num_mazes} mazes solved"
        case dict() if found and all(isinstance(value, ImageRef) for value in found.values()):
            return ", ".join(f"{name} {value.sha256[:12]}" for name, value in found.items())
        case _:
            return ""
