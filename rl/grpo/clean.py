"""Ray job entry point: how much of a run lies on the shared file system, and away with it where asked.

``python -m rl.grpo.clean JSON``. It runs on the cluster, because only there the file system is mounted. Checkpoints go:
they are nearly all of the bytes, and a run that has ended well is not taken up again. Exports, evaluations and logs
stay.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rl.events import EventLog, Stored
from rl.grpo.config_table import RunDirs
from rl.output import clean_output
from rl.settings import Settings


class CleanJob(Settings):
    """What the job's command line carries."""

    shared_dir: str
    """Folder of all runs, as the nodes see it."""
    run_name: str
    remove: bool
    """Whether the checkpoints go; otherwise they are only measured."""


def size_bytes(folder: Path) -> int:
    """Bytes of all files below, links not followed."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def clean(job: CleanJob, log: EventLog) -> None:
    """Measure the run's checkpoints, remove them if asked, and say so; nothing to find is nothing to say."""
    dirs = RunDirs(job.shared_dir, job.run_name)
    for folder in (dirs.checkpoints, dirs.lora_sync):
        if not folder.is_dir():
            continue
        size = size_bytes(folder)
        if job.remove:
            shutil.rmtree(folder)
        log.emit(Stored(path=str(folder), size_bytes=size, removed=job.remove))


def main(argv: list[str]) -> None:
    clean(CleanJob.model_validate_json(argv[1]), EventLog())


if __name__ == "__main__":
    clean_output()
    main(sys.argv)
