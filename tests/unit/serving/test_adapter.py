"""Adapter checks: each kind of bad adapter is stopped before upload, by name, with what was wanted."""

from __future__ import annotations

import json
import re
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


def configure(folder: Path, **fields: Any) -> None:
    """Other values; a field whose value is ``...`` goes."""
    path = folder / "adapter_config.json"
    config = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))


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
    configure(adapter, target_modules=["linear_fc1"])
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


NOT_SERVED = {
    "use_dora": True,
    "modules_to_save": ["lm_head"],
    "bias": "all",
    "rank_pattern": {"q_proj": 4},
    "alpha_pattern": {"q_proj": 4},
    "lora_alpha": ...,
    "target_modules": None,
    "lora_bias": True,
    "layer_replication": [[0, 4], [2, 5]],
    "trainable_token_indices": [7],
    "init_lora_weights": "pissa_niter_4",
}


@pytest.mark.parametrize("field", NOT_SERVED)
def test_what_the_server_would_pass_over_or_misread_is_rejected_with_its_field(tmp_path: Path, field: str) -> None:
    base, adapter = make_base(tmp_path / "base"), make_adapter(tmp_path / "adapter")
    configure(adapter, **{field: NOT_SERVED[field]})
    with pytest.raises(AdapterRejected, match=rf"adapter_config\.json: {field} is "):
        check_adapter(adapter, base, LIMITS)


def test_what_peft_writes_for_a_plain_adapter_is_fit(tmp_path: Path) -> None:
    """The fields of peft 0.18's save_pretrained, as a training's export has them."""
    base, adapter = make_base(tmp_path / "base"), make_adapter(tmp_path / "adapter")
    empty: dict[str, Any] = {"rank_pattern": {}, "alpha_pattern": {}, "loftq_config": {}, "modules_to_save": None}
    configure(adapter, **empty, bias="none", use_dora=False, use_rslora=True, init_lora_weights=True)
    configure(adapter, exclude_modules=".*visual.*", target_modules=["q_proj", "linear_fc1"])
    assert check_adapter(adapter, base, LIMITS)["r"] == 2


def make_layers(folder: Path) -> tuple[Path, Path]:
    """A base of four layers and an adapter for both projections of each."""
    modules = [f"model.language_model.layers.{n}.self_attn.{part}_proj" for n in range(4) for part in "qk"]
    base, adapter = folder / "base", folder / "adapter"
    base.mkdir()
    adapter.mkdir()
    save_file({f"{module}.weight": np.ones((6, 4), np.float32) for module in modules}, base / "model.safetensors")
    sides = {"A": np.ones((2, 4), np.float32), "B": np.ones((6, 2), np.float32)}
    tensors = {f"base_model.model.{m}.lora_{side}.weight": t for m in modules for side, t in sides.items()}
    save_file(tensors, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text("{}")
    configure(adapter, peft_type="LORA", r=2, lora_alpha=2, target_modules=["q_proj", "k_proj"])
    return base, adapter


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (r"layers\.0\.self_attn\.q_proj", r"lacks 7 modules, base_model.*layers\.0\.self_attn\.k_proj.*and others"),
        (r"layers\.[012]\.", r"lacks 2 modules, .*layers\.3\.self_attn\.k_proj\.lora_A\.weight.*names 8 in all"),
    ],
)
def test_a_file_that_lacks_modules_is_rejected_and_they_are_named(tmp_path: Path, kept: str, message: str) -> None:
    base, adapter = make_layers(tmp_path)
    assert check_adapter(adapter, base, LIMITS)
    change(adapter, lambda tensors: [tensors.pop(key) for key in list(tensors) if not re.search(kept, key)])
    with pytest.raises(AdapterRejected, match=f"{message}.*export again"):
        check_adapter(adapter, base, LIMITS)


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"target_modules": ["q_proj"]}, False),
        ({"target_modules": r".*self_attn\.[qk]_proj"}, True),
        ({"target_modules": r".*self_attn\.q_proj"}, False),
        ({"target_modules": "all-linear"}, True),
        ({"layers_to_transform": [0, 1, 2, 3]}, True),
        ({"layers_to_transform": 1}, False),
        ({"exclude_modules": ["k_proj"]}, False),
    ],
)
def test_modules_that_the_configuration_does_not_name_are_rejected(
    tmp_path: Path, fields: dict[str, Any], fits: bool
) -> None:
    base, adapter = make_layers(tmp_path)
    configure(adapter, **fields)
    if fits:
        assert check_adapter(adapter, base, LIMITS)
        return
    with pytest.raises(AdapterRejected, match=r"holds [46] modules.*it belongs to another file"):
        check_adapter(adapter, base, LIMITS)


def test_the_base_fingerprint_follows_the_weights(tmp_path: Path) -> None:
    first, second = make_base(tmp_path / "a"), make_base(tmp_path / "b")
    assert base_fingerprint(first) == base_fingerprint(second)
    save_file({"w": np.zeros(1, np.float32)}, second / "model.safetensors")
    assert base_fingerprint(first) != base_fingerprint(second)
    with pytest.raises(AdapterRejected, match="no safetensors file"):
        base_fingerprint(tmp_path)
