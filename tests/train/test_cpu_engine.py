"""The engine's LoRA products against vLLM's own, on random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

from rl.grpo.cpu.engine import MatmulPunicaWrapper

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
    ours, theirs = (applied(kind, [0] * 40) for kind in (MatmulPunicaWrapper, PunicaWrapperCPU))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-3)


def test_tokens_without_an_adapter_stay_as_they_are() -> None:
    indices = [0, -1, 0, -1]
    ours, all_adapted, none = (applied(MatmulPunicaWrapper, rows) for rows in (indices, [0] * 4, [-1] * 4))
    torch.testing.assert_close(ours[::2], all_adapted[::2])
    torch.testing.assert_close(ours[1::2], none[1::2])


@pytest.mark.parametrize("indices", [[0, 1, 1, 0], [1, 1, 1, 1], [2, -1, 0, 2]])
def test_each_token_gets_its_own_adapter(indices: list[int]) -> None:
    adapted = [slot >= 0 for slot in indices]
    ours, theirs = (applied(kind, indices, 3) for kind in (MatmulPunicaWrapper, PunicaWrapperCPU))
    torch.testing.assert_close(ours[adapted], theirs[adapted], rtol=1e-5, atol=1e-3)


def test_a_base_request_beside_an_adapter_s_is_answered_by_the_base() -> None:
    beside, alone = (applied(MatmulPunicaWrapper, rows, 3) for rows in ([2, -1], [-1, -1]))
    torch.testing.assert_close(beside[1], alone[1])
    # vLLM's own takes slot -1 for the last one: the base would answer with its weights.
    theirs = applied(PunicaWrapperCPU, [2, -1], 3)
    assert not torch.allclose(theirs[1], alone[1], atol=1e-2)


@pytest.mark.parametrize("rows", [1, 7])
def test_a_single_token_works_too(rows: int) -> None:
    ours, theirs = (applied(kind, [0] * rows) for kind in (MatmulPunicaWrapper, PunicaWrapperCPU))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-3)
