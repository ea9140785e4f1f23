"""What an adapter's configuration may ask for: what vLLM applies, and what its tensors really are.

vLLM reads a few fields of peft's configuration and passes over the others without a word, so that an adapter can be
loaded as something else than what was trained.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

NOT_APPLIED = {
    "modules_to_save": "whole modules beside the adapter are not loaded",
    "use_dora": "DoRA's magnitudes are not applied",
    "rank_pattern": "one rank for all modules is read",
    "alpha_pattern": "one scale for all modules is read",
    "lora_bias": "biases of lora_B are not loaded",
    "fan_in_fan_out": "transposed weights are not applied",
    "layer_replication": "the base's layers are not repeated",
    "trainable_token_indices": "trained tokens are not loaded",
    "target_parameters": "bare parameters are not adapted",
    "alora_invocation_tokens": "an adapter applies to every token",
    "arrow_config": "adapters are not routed",
    "use_qalora": "pooled inputs are not applied",
}
"""Field of peft's LoraConfig (0.18) -> what vLLM (0.29, 0.30; lora/peft_helper.py) does with it, unless it is empty."""
KEEPS_THE_BASE = (None, True, False, "gaussian", "orthogonal", "eva")
"""Ways of peft to initialise an adapter that leave the base's weights alone; the others only fit a changed base."""


def faults(config: Mapping[str, Any], max_lora_rank: int) -> list[str]:
    """What a server could not serve as it was trained, each with its field; empty for a fit configuration."""
    found = [f"{name} is {config[name]!r}: {why}" for name, why in NOT_APPLIED.items() if config.get(name)]
    if config.get("bias", "none") != "none":
        found.append(f"bias is {config['bias']!r}: trained biases are not loaded; none was wanted")
    alpha = config.get("lora_alpha")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        found.append(f"lora_alpha is {alpha!r}: the scale is lora_alpha / r, a number was wanted")
    if not isinstance(config.get("target_modules"), str | list) or not config["target_modules"]:
        found.append(f"target_modules is {config.get('target_modules')!r}: names of modules were wanted")
    if config.get("init_lora_weights", True) not in KEEPS_THE_BASE:
        found.append(f"init_lora_weights is {config['init_lora_weights']!r}: that changes the base's weights as well")
    return found or vllm_faults(config, max_lora_rank)


def vllm_faults(config: Mapping[str, Any], max_lora_rank: int) -> list[str]:
    """vLLM's own verdict, where it is installed: on the cluster that publishes."""
    if importlib.util.find_spec("vllm") is None:
        return []
    helper = importlib.import_module("vllm.lora.peft_helper").PEFTHelper
    try:
        helper.from_dict(dict(config)).validate_legal(SimpleNamespace(max_lora_rank=max_lora_rank))
    except (TypeError, ValueError) as error:
        return [f"vLLM refuses it: {error}"]
    return []


def targeted(config: Mapping[str, Any], base_modules: Iterable[str]) -> set[str]:
    """The base's modules that the configuration names, by peft's rule (tuners/tuners_utils.py)."""
    wanted, left_out, layers = (
        config["target_modules"],
        config.get("exclude_modules"),
        config.get("layers_to_transform"),
    )
    numbers = None if layers is None else {layers} if isinstance(layers, int) else set(layers)
    return {
        module
        for module in base_modules
        if _named(module, wanted)
        and not (left_out and _named(module, left_out))
        and (numbers is None or _layer(module) in numbers)
    }


def _named(module: str, names: str | list[str]) -> bool:
    if names == "all-linear":
        return not re.search(r"(embed[^.]*|lm_head)$", module)
    if isinstance(names, str):
        return re.fullmatch(names, module) is not None
    return any(module == name or module.endswith(f".{name}") for name in names)


def _layer(module: str) -> int | None:
    found = re.search(r"\.(?:layers|blocks|h)\.(\d+)\.", module)
    return int(found[1]) if found else None
