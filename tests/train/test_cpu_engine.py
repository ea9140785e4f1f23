"""The engine's LoRA products against vLLM's own, on random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

from rl.cpu_engine import SingleAdapterPunicaWrapper

SLICES = (96, 32)


def applied(kind: type[PunicaWrapperCPU], indices: list[int], num_slots: int = 1) -> torch.Tensor:
    torch.manual_seed(0)
    num_tokens = len(indices)
    wrapper: Any = kind(max_num_batched_tokens=64, max_batches=64, device="cpu")
    wrapper._token_lora_indices[:num_tokens] = torch.tensor(indices)
    wrapper.indices_len[0] = num_tokens
    wrapper.is_prefill = False
    a = tuple(torch.randn(num_slots, 1, 32, 128) for _ in SLICES)
    b = tuple(torch.randn(num_slots, 1, size, 32) for size in SLICES)
    y, x = torch.randn(num_tokens, sum(SLICES)), torch.randn(num_tokens, 128)
    wrapper.add_lora_linear(y, x, a, b, 0.5, SLICES)
    return y


def test_one_adapter_gives_what_vllms_gather_gives() -> None:
    ours, theirs = (applied(kind, [0] * 40) for kind in (SingleAdapterPunicaWrapper, PunicaWrapperCPU))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-3)


def test_tokens_without_an_adapter_stay_as_they_are() -> None:
    indices = [0, -1, 0, -1]
    ours, all_adapted, none = (applied(SingleAdapterPunicaWrapper, rows) for rows in (indices, [0] * 4, [-1] * 4))
    torch.testing.assert_close(ours[::2], all_adapted[::2])
    torch.testing.assert_close(ours[1::2], none[1::2])


def test_several_slots_fall_back_to_vllms_gather() -> None:
    indices = [0, 1, 1, 0]
    ours, theirs = (applied(kind, indices, 2) for kind in (SingleAdapterPunicaWrapper, PunicaWrapperCPU))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("rows", [1, 7])
def test_a_single_token_works_too(rows: int) -> None:
    ours, theirs = (applied(kind, [0] * rows) for kind in (SingleAdapterPunicaWrapper, PunicaWrapperCPU))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-3)
