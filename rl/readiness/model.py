"""Can the base model be loaded? ``python -m rl.readiness.model FOLDER``: configuration and processor, not the weights.

A process of its own: it imports torch and transformers, and a folder on a lost mount hangs whoever reads it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rl.model_files import missing_files
from rl.readiness.checks import Unready


def load(folder: Path) -> str:
    """Load what is small; raises Unready, or what transformers raises."""
    if missing := missing_files(folder):
        raise Unready(f"it has no {', '.join(missing)}")
    from transformers import AutoConfig, AutoProcessor

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    processor = AutoProcessor.from_pretrained(folder, local_files_only=True)
    if getattr(processor, "image_processor", None) is None:
        # AutoProcessor falls back to a bare tokenizer.
        raise Unready("it has a tokenizer and no image processor")
    return f"{(config.architectures or [config.model_type])[0]} with {type(processor).__name__}"


def load_apart(folder: str, timeout_s: float, env: Mapping[str, str]) -> str:
    """``load`` in another process, which is ended after ``timeout_s``; raises Unready with its last words."""
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
        sys.stdout.write(f"{load(Path(argv[1]))}\n")
    except Unready as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv)
