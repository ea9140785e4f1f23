"""Checkpoint and export folders that SkyRL writes: which is the newest whole one, and what is in it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
MARK = "complete.json"
_NUM_READERS = 8
"""Files hashed at a time: a shared file system gives one reader a part of what it has."""
_STEP = re.compile(r"global_step_(\d+)")


class CheckpointMismatch(RuntimeError):
    """A checkpoint is there, and this run cannot go on from it."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint folder."""

    step: int
    path: Path


@dataclass(frozen=True)
class PassedOver:
    """A checkpoint that nothing can go on from."""

    checkpoint: Checkpoint
    reason: str

    def __str__(self) -> str:
        return f"{self.checkpoint.path} is passed over: {self.reason}"


@dataclass(frozen=True)
class Found:
    """The newest whole checkpoint, and the newer ones that are not."""

    checkpoint: Checkpoint | None
    passed_over: tuple[PassedOver, ...] = ()
    """The newest first."""


class FileMark(BaseModel):
    """What a file was when it was written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size_bytes: int
    sha256: str


class Mark(BaseModel):
    """Every file of a folder, by its path in it. Written last: where it lies, the folder was whole."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: dict[str, FileMark]


def step_folders(folder: Path) -> list[Checkpoint]:
    """``global_step_N`` folders in ascending order; half-written ``.tmp-*`` folders have other names."""
    if not folder.is_dir():
        return []
    found = [(match, path) for path in folder.iterdir() if (match := _STEP.fullmatch(path.name))]
    return sorted((Checkpoint(int(match[1]), path) for match, path in found), key=lambda c: c.step)


def find_checkpoint(folder: Path, world_size: int) -> Found:
    """The newest checkpoint with every rank's files as they were written.

    SkyRL's own pointer file is written without an atomic rename, may lag behind and, when missing, restarts
    training in silence; the folders and their marks are the evidence. FSDP shards belong to one world size.

    Raises CheckpointMismatch when the newest folder was written by another number of ranks.
    """
    passed_over: list[PassedOver] = []
    for checkpoint in reversed(step_folders(folder)):
        shards = sorted(path.name for path in (checkpoint.path / "policy").glob("model_world_size_*_rank_*.pt"))
        if shards and not all(f"_world_size_{world_size}_" in name for name in shards):
            raise CheckpointMismatch(
                f"{checkpoint.path} has shards {shards[0]} ..., this run has {world_size} ranks; bring back the ranks "
                "it was written with, or start under another run name"
            )
        reason = what_is_wrong(checkpoint.path, _required(world_size))
        if not reason:
            return Found(checkpoint, tuple(passed_over))
        passed_over.append(PassedOver(checkpoint, reason))
    return Found(None, tuple(passed_over))


def _required(world_size: int) -> list[str]:
    kinds = ("model", "optim", "extra_state")
    shards = [f"policy/{kind}_world_size_{world_size}_rank_{rank}.pt" for kind in kinds for rank in range(world_size)]
    return [*shards, "data.pt", "trainer_state.pt"]


def set_aside(passed_over: Iterable[PassedOver]) -> None:
    """Rename folders: SkyRL counts a ``global_step_N`` among those it keeps, and would remove a good one for it."""
    for checkpoint in (entry.checkpoint for entry in passed_over):
        number = 1
        while (aside := checkpoint.path.with_name(f"passed_over_{number}_{checkpoint.path.name}")).exists():
            number += 1
        checkpoint.path.rename(aside)


def unmark(folder: Path) -> None:
    """Before a folder is written again: it is not whole until it is marked again."""
    (folder / MARK).unlink(missing_ok=True)


def mark_whole(folder: Path) -> Mark:
    """Write down the size and digest of every file below; the last thing that is written into a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(MARK))
    with ThreadPoolExecutor(_NUM_READERS) as readers:
        digests = list(readers.map(file_sha256, paths))
    mark = Mark(
        files={
            str(path.relative_to(folder)): FileMark(size_bytes=path.stat().st_size, sha256=sha256)
            for path, sha256 in zip(paths, digests, strict=True)
        }
    )
    unfinished = folder / f"{MARK}.part"
    with unfinished.open("w") as file:
        file.write(mark.model_dump_json(indent=1))
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(folder / MARK)
    return mark


def what_is_wrong(folder: Path, required: Iterable[str] = ADAPTER_FILES) -> str:
    """Why a folder is not what was written, or an empty text. Sizes are compared first: that costs nothing."""
    try:
        files = Mark.model_validate_json((folder / MARK).read_bytes()).files
    except FileNotFoundError:
        return f"it has no {MARK}, so it was not written to its end"
    except ValidationError:
        return f"its {MARK} cannot be read"
    if unwritten := sorted(set(required) - files.keys()):
        return f"{', '.join(unwritten)} was never written"
    for name, wanted in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is gone"
        if (size_bytes := path.stat().st_size) != wanted.size_bytes:
            return f"{name} has {size_bytes} bytes, {wanted.size_bytes} were written"
    with ThreadPoolExecutor(_NUM_READERS) as readers:
        digests = readers.map(file_sha256, (folder / name for name in files))
        changed = [name for name, sha256 in zip(files, digests, strict=True) if sha256 != files[name].sha256]
    return f"{', '.join(changed)} holds other bytes than were written" if changed else ""


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def adapter_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the two PEFT files; raises FileNotFoundError naming the one that is missing."""
    for name in ADAPTER_FILES:
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}; the export is incomplete")
    return {name: file_sha256(folder / name) for name in ADAPTER_FILES}
