"""The fixed evaluation set: a manifest of mazes that never changes between runs.

The manifest lists seed, fingerprint and shortest path of every maze and carries the SHA-256 of its own
content. It is checked before anything is evaluated: first the digest, then every maze against its seed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from rl.maze.grid import Maze, num_mazes, turns_needed
from rl.maze.sources import SOURCES


class EvalSetMismatch(ValueError):
    """The manifest does not describe the mazes that would be played."""


class EvalMaze(BaseModel):
    """One maze of the set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int
    fingerprint: str
    turns_needed: int
    """Moves of the shortest path plus the stop."""


class EvalSet(BaseModel):
    """The mazes of one evaluation, in the order in which reports list them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    env_id: str
    height: int
    width: int
    mazes: tuple[EvalMaze, ...]

    @property
    def sha256(self) -> str:
        """Digest of the content, independent of the file's layout."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def fingerprints(self) -> frozenset[str]:
        return frozenset(maze.fingerprint for maze in self.mazes)

    def ceiling(self, max_turns: int) -> int:
        """How many of the mazes any agent can solve within ``max_turns`` turns."""
        return sum(maze.turns_needed <= max_turns for maze in self.mazes)


class NotEnoughMazes(ValueError):
    """More different mazes are wanted than there are of this size."""


def distinct_mazes(env_id: str, height: int, width: int, first_seed: int = 0) -> Iterator[tuple[int, Maze]]:
    """Mazes by ascending seed, each fingerprint once, until there is no other."""
    seen: set[str] = set()
    seed, there_are = first_seed, num_mazes(height, width)
    while len(seen) < there_are:
        maze = SOURCES[env_id](seed, height, width)
        if maze.fingerprint not in seen:
            seen.add(maze.fingerprint)
            yield seed, maze
        seed += 1


def build_eval_set(env_id: str, height: int, width: int, num_wanted: int) -> EvalSet:
    """The first ``num_wanted`` distinct mazes, counting seeds from 0; raises NotEnoughMazes."""
    if num_wanted > (there_are := num_mazes(height, width)):
        raise NotEnoughMazes(f"there are {there_are} mazes of {height}x{width}, {num_wanted} are wanted; take fewer")
    drawn = islice(distinct_mazes(env_id, height, width), num_wanted)
    mazes = tuple(
        EvalMaze(seed=seed, fingerprint=maze.fingerprint, turns_needed=turns_needed(maze)) for seed, maze in drawn
    )
    return EvalSet(env_id=env_id, height=height, width=width, mazes=mazes)


def write_eval_set(eval_set: EvalSet, path: Path) -> None:
    """Write the manifest with its digest."""
    document = {"sha256": eval_set.sha256, **eval_set.model_dump(mode="json")}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def load_eval_set(path: Path) -> EvalSet:
    """Read a manifest and check digest and mazes.

    Raises EvalSetMismatch naming the first difference, FileNotFoundError when there is no manifest.
    """
    if not path.is_file():
        raise FileNotFoundError(f"evaluation manifest {path} does not exist; give one with data.eval_manifest")
    document = json.loads(path.read_text())
    stated = document.pop("sha256", None)
    eval_set = EvalSet.model_validate(document)
    if stated != eval_set.sha256:
        raise EvalSetMismatch(
            f"{path} says sha256 {stated}, its content has {eval_set.sha256}; restore the file, since results on "
            "a changed set cannot be compared"
        )
    if eval_set.env_id not in SOURCES:
        raise EvalSetMismatch(f"{path} is of {eval_set.env_id}; mazes can be drawn for {', '.join(SOURCES)}")
    for row in eval_set.mazes:
        maze = SOURCES[eval_set.env_id](row.seed, eval_set.height, eval_set.width)
        if (maze.fingerprint, turns_needed(maze)) != (row.fingerprint, row.turns_needed):
            raise EvalSetMismatch(
                f"seed {row.seed} gives maze {maze.fingerprint[:12]}, {path} wants {row.fingerprint[:12]}; "
                "the generator changed: restore it, or publish a new set under a new name"
            )
    return eval_set
