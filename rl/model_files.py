"""Which files make a folder a model with its processor."""

from __future__ import annotations

import json
from pathlib import Path

PROCESSOR_FILES = ("config.json", "processor_config.json", "tokenizer.json")
INDEX = "model.safetensors.index.json"


def missing_files(folder: Path) -> list[str]:
    """Files that a model folder should have and has not; weights in several files are listed by their index."""
    return [name for name in PROCESSOR_FILES if not (folder / name).exists()] + _missing_weights(folder)


def _missing_weights(folder: Path) -> list[str]:
    if not (folder / INDEX).exists():
        return [] if (folder / "model.safetensors").exists() else ["model.safetensors"]
    shards = set(json.loads((folder / INDEX).read_text())["weight_map"].values())
    return sorted(name for name in shards if not (folder / name).exists())
