"""Checkpoint and export folders that SkyRL writes: which is the newest complete one, and what is in it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_STEP = re.compile(r"global_step_(\d+)")


class CheckpointMismatch(RuntimeError):
    """A checkpoint is there, and this run cannot go on from it."""


@dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint folder."""

    step: int
    path: Path


def step_folders(folder: Path) -> list[Checkpoint]:
    """``global_step_N`` folders in ascending order; half-written ``.tmp-*`` folders have other names."""
    if not folder.is_dir():
        return []
    found = [(match, path) for path in folder.iterdir() if (match := _STEP.fullmatch(path.name))]
    return sorted((Checkpoint(int(match[1]), path) for match, path in found), key=lambda c: c.step)


def latest_complete_checkpoint(folder: Path, world_size: int) -> Checkpoint | None:
    """The newest checkpoint with every rank's files, or None to start afresh.

    SkyRL's own pointer file is written without an atomic rename, may lag behind and, when missing, restarts
    training in silence; the folders themselves are the evidence. FSDP shards belong to one world size.

    Raises CheckpointMismatch when the newest folder was written by another number of ranks.
    """
    for checkpoint in reversed(step_folders(folder)):
        shards = sorted(path.name for path in (checkpoint.path / "policy").glob("model_world_size_*_rank_*.pt"))
        if shards and not all(f"_world_size_{world_size}_" in name for name in shards):
            raise CheckpointMismatch(
                f"{checkpoint.path} has shards {shards[0]} ..., this run has {world_size} ranks; bring back the ranks "
                "it was written with, or start under another run name"
            )
        if all((checkpoint.path / name).is_file() for name in _required(world_size)):
            return checkpoint
    return None


def _required(world_size: int) -> list[str]:
    kinds = ("model", "optim", "extra_state")
    shards = [f"policy/{kind}_world_size_{world_size}_rank_{rank}.pt" for kind in kinds for rank in range(world_size)]
    return [*shards, "data.pt", "trainer_state.pt"]


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def adapter_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the two PEFT files; raises FileNotFoundError naming the one that is missing."""
    for name in ADAPTER_FILES:
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}; the export is incomplete")
    return {name: file_sha256(folder / name) for name in ADAPTER_FILES}
