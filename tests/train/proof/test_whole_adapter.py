"""Adapters with peft and vLLM themselves: a cut file is noticed, and vLLM's own check is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.numpy import load_file, save_file
from transformers import Qwen3VLForConditionalGeneration

from rl.proof.job import main
from rl.proof.settings import ProbeJob, Questions
from rl.settings import MazeSettings
from serving.adapter import AdapterRejected, ServerLimits, check_adapter
from serving.lora_config import faults, vllm_faults

BASE = Path("rl/models/tiny-qwen3-vl")
FIT: dict[str, Any] = {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["q_proj"]}


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """As a training's export has it: every linear module of the language model."""
    torch.manual_seed(1)
    config = LoraConfig(r=8, lora_alpha=8, target_modules="all-linear", exclude_modules=".*visual.*")
    model = get_peft_model(Qwen3VLForConditionalGeneration.from_pretrained(BASE), config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(str(tmp_path / "adapter"))
    return tmp_path / "adapter"


def probe(adapter: Path) -> None:
    questions = Questions(maze=MazeSettings(), num_probes=1, max_reply_tokens=4)
    order = ProbeJob(base_dir=str(BASE), adapter_dir=str(adapter), dtype="float32", questions=questions)
    main(["rl.proof.job", order.model_dump_json()])


def test_an_adapter_that_lacks_modules_is_refused_before_upload_and_by_the_probe(
    adapter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    probe(adapter)
    assert check_adapter(adapter, BASE, ServerLimits(8))
    weights = adapter / "adapter_model.safetensors"
    tensors = load_file(weights)
    whole = len(tensors)
    save_file({key: tensor for key, tensor in tensors.items() if "layers.0.self_attn.q_proj" in key}, weights)
    with pytest.raises(AdapterRejected, match=f"lacks {whole // 2 - 1} modules"):
        check_adapter(adapter, BASE, ServerLimits(8))
    with pytest.raises(UserWarning, match="missing adapter keys"):
        probe(adapter)
    assert "CannotProbe" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"use_dora": True}, "DoRA"), ({"modules_to_save": ["lm_head"]}, "modules_to_save"), ({"bias": "all"}, "bias")],
)
def test_what_vllm_itself_refuses_is_refused_here_too(fields: dict[str, Any], words: str) -> None:
    (said,) = vllm_faults({**FIT, **fields}, 8)
    assert words in said
    assert faults({**FIT, **fields}, 8)


def test_vllm_takes_what_is_fit_and_its_word_counts_for_what_is_not_known_here() -> None:
    assert faults(FIT, 8) == []
    assert vllm_faults({key: value for key, value in FIT.items() if key != "lora_alpha"}, 8)
    assert "vLLM refuses it: LoRA rank" in faults({**FIT, "r": 0}, 8)[0]
