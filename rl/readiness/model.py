"""Can the base model be loaded? ``python -m rl.readiness.model FOLDER``: configuration and processor, not the weights.

A process of its own: it imports torch and transformers, and a folder on a lost mount hangs whoever reads it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rl.model_files import NoModel, loaded
from rl.readiness.checks import Unready


def load_apart(folder: str, timeout_s: float, env: Mapping[str, str]) -> str:
    """``loaded`` in another process, which is ended after ``timeout_s``; raises Unready with its last words."""
    command = [sys.executable, "-m", "rl.readiness.model", folder]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise Unready(f"model folder {folder} was not loaded within {timeout_s:g} s") from error
    if done.returncode:
        raise Unready(f"model folder {folder}: {(done.stderr.strip() or 'it died without a word').splitlines()[-1]}")
    return done.stdout.strip().splitlines()[-1]


def main(argv: list[str]) -> None:
    try:
        sys.stdout.write(f"{loaded(Path(argv[1]))}\n")
    except NoModel as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv)
