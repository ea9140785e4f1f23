"""Whether a folder is a model with its processor: weights by their names, everything else by asking transformers."""

from __future__ import annotations

import json
from pathlib import Path

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"


class NoModel(ValueError):
    """The folder is no model that can be trained from pictures; says what it lacks."""


def missing_files(folder: Path) -> list[str]:
    """Files without which no model can be loaded; weights in several files are listed by their index.

    A processor's files are not among them: their names depend on who saved it (transformers 4 writes
    ``preprocessor_config.json``, transformers 5 ``processor_config.json``), see ``loaded``.
    """
    return [name for name in (CONFIG,) if not (folder / name).exists()] + _missing_weights(folder)


def loaded(folder: Path) -> str:
    """Load configuration and processor, not the weights; raises NoModel, or what transformers raises."""
    if missing := missing_files(folder):
        raise NoModel(f"it has no {', '.join(missing)}")
    from transformers import AutoConfig, AutoProcessor

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    processor = AutoProcessor.from_pretrained(folder, local_files_only=True)
    if getattr(processor, "image_processor", None) is None:
        # AutoProcessor falls back to a bare tokenizer.
        raise NoModel("it has a tokenizer and no image processor")
    tokenizer, image = processor.tokenizer, getattr(processor, "image_token", None)
    if image is None or tokenizer.convert_tokens_to_ids(image) != getattr(config, "image_token_id", None):
        # Without its files, transformers makes an empty tokenizer and says nothing.
        raise NoModel(f"its tokenizer ({len(tokenizer)} tokens) does not know the picture's token {image}")
    if not (getattr(processor, "chat_template", None) or tokenizer.chat_template):
        raise NoModel("its processor has no chat template")
    return f"{(config.architectures or [config.model_type])[0]} with {type(processor).__name__}"


def _missing_weights(folder: Path) -> list[str]:
    if not (folder / INDEX).exists():
        return [] if (folder / "model.safetensors").exists() else ["model.safetensors"]
    shards = set(json.loads((folder / INDEX).read_text())["weight_map"].values())
    return sorted(name for name in shards if not (folder / name).exists())
