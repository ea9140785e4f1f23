"""Adapter checks: each kind of bad adapter is stopped before upload, by name, with what was wanted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from serving.adapter import AdapterRejected, ServerLimits, base_fingerprint, check_adapter

MODULE = "model.language_model.layers.0.self_attn.q_proj"
KEY = f"base_model.model.{MODULE}"
LIMITS = ServerLimits(max_lora_rank=8)


def make_base(folder: Path) -> Path:
    folder.mkdir()
    weights = {f"{MODULE}.weight": (6, 4), "model.visual.blocks.0.mlp.linear_fc1.weight": (6, 4)}
    save_file({name: np.ones(shape, np.float32) for name, shape in weights.items()}, folder / "model.safetensors")
    return folder


def make_adapter(folder: Path, rank: int = 2, **tensors: np.ndarray) -> Path:
    folder.mkdir()
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    pair = {f"{KEY}.lora_A.weight": np.ones((rank, 4)), f"{KEY}.lora_B.weight": np.ones((6, rank))}
    arrays = {name: np.asarray(tensor, np.float32) for name, tensor in {**pair, **tensors}.items()}
    save_file(arrays, folder / "adapter_model.safetensors")
    return folder


def change(folder: Path, edit: Callable[[dict[str, np.ndarray]], object]) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "adapter_model.safetensors")


def rename(old: str, new: str) -> Callable[[dict[str, np.ndarray]], object]:
    def edit(tensors: dict[str, np.ndarray]) -> None:
        for key in list(tensors):
            tensors[key.replace(old, new)] = tensors.pop(key)

    return edit


def test_a_good_adapter_passes_in_float32_and_bfloat16(tmp_path: Path) -> None:
    base, adapter = make_base(tmp_path / "base"), make_adapter(tmp_path / "adapter")
    assert check_adapter(adapter, base, LIMITS)["r"] == 2
    change(adapter, lambda t: t.update({key: tensor.astype(ml_dtypes.bfloat16) for key, tensor in t.items()}))
    assert check_adapter(adapter, base, LIMITS)["r"] == 2


BAD: dict[str, tuple[Callable[[dict[str, np.ndarray]], Any], str]] = {
    "all-zero lora_B": (lambda t: t[f"{KEY}.lora_B.weight"].fill(0), r"every lora_B is zero"),
    "not finite": (
        lambda t: t[f"{KEY}.lora_A.weight"].fill(np.nan),
        r"q_proj\.lora_A\.weight holds values that are not",
    ),
    "wrong prefix": (rename("base_model.model.", ""), r"key model\.language_model.*base_model\.model\.<module>"),
    "other base": (rename("layers.0", "layers.7"), r"layers\.7\.self_attn\.q_proj is no module of the base model"),
    "half a pair": (lambda t: t.pop(f"{KEY}.lora_B.weight"), r"has only lora_A; both halves"),
    "wrong rank": (
        lambda t: t.update({f"{KEY}.lora_A.weight": np.ones((3, 4), np.float32)}),
        r"lora_A \(3, 4\) and lora_B \(6, 2\); the base module \(6, 4\) at rank 2 wants \(2, 4\) and \(6, 2\)",
    ),
    "integers": (
        lambda t: t.update({key: tensor.astype(np.int32) for key, tensor in t.items()}),
        r"has dtype I32; one of F32, F16, BF16",
    ),
    "vision tower": (
        rename(MODULE, "model.visual.blocks.0.mlp.linear_fc1"),
        r"adapts the vision tower, which the server leaves out",
    ),
    "nothing": (lambda t: t.clear(), r"holds no tensors"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_adapter_is_rejected_with_its_key(tmp_path: Path, fault: str) -> None:
    base, adapter = make_base(tmp_path / "base"), make_adapter(tmp_path / "adapter")
    edit, message = BAD[fault]
    change(adapter, edit)
    with pytest.raises(AdapterRejected, match=message):
        check_adapter(adapter, base, LIMITS)


def test_a_server_with_tower_lora_takes_vision_weights(tmp_path: Path) -> None:
    base, adapter = make_base(tmp_path / "base"), make_adapter(tmp_path / "adapter")
    change(adapter, rename(MODULE, "model.visual.blocks.0.mlp.linear_fc1"))
    assert check_adapter(adapter, base, ServerLimits(max_lora_rank=8, serves_tower_lora=True))


def test_a_rank_above_the_server_s_is_rejected(tmp_path: Path) -> None:
    base, adapter = make_base(tmp_path / "base"), make_adapter(tmp_path / "adapter", rank=16)
    with pytest.raises(AdapterRejected, match="rank 16, the server loads at most 8"):
        check_adapter(adapter, base, LIMITS)


def test_truncated_weights_are_rejected(tmp_path: Path) -> None:
    base, adapter = make_base(tmp_path / "base"), make_adapter(tmp_path / "adapter")
    weights = adapter / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-16])
    with pytest.raises(AdapterRejected, match="cut off or damaged"):
        check_adapter(adapter, base, LIMITS)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    base, adapter = make_base(tmp_path / "base"), make_adapter(tmp_path / "adapter")
    (adapter / name).unlink()
    with pytest.raises(AdapterRejected, match=f"has no {name}"):
        check_adapter(adapter, base, LIMITS)


@pytest.mark.parametrize(("config", "message"), [("{", "is not JSON"), ('{"peft_type": "IA3"}', "peft_type 'IA3'")])
def test_a_damaged_configuration_is_rejected(tmp_path: Path, config: str, message: str) -> None:
    base, adapter = make_base(tmp_path / "base"), make_adapter(tmp_path / "adapter")
    (adapter / "adapter_config.json").write_text(config)
    with pytest.raises(AdapterRejected, match=message):
        check_adapter(adapter, base, LIMITS)


def test_the_base_fingerprint_follows_the_weights(tmp_path: Path) -> None:
    first, second = make_base(tmp_path / "a"), make_base(tmp_path / "b")
    assert base_fingerprint(first) == base_fingerprint(second)
    save_file({"w": np.zeros(1, np.float32)}, second / "model.safetensors")
    assert base_fingerprint(first) != base_fingerprint(second)
    with pytest.raises(AdapterRejected, match="no safetensors file"):
        base_fingerprint(tmp_path)
