"""The engine's LoRA products against vLLM's own, on random weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

from rl.grpo.cpu.engine import MatmulPunicaWrapper
from tests.train.float_bounds import FAULT, gamma, times_over

SLICES = (96, 32)
WIDTH, RANK, SCALE = 128, 32, 0.5


class Layer(NamedTuple):
    """What a layer gave before (y), its inputs (x), and A and B of each slice and slot."""

    y: torch.Tensor
    x: torch.Tensor
    a: tuple[torch.Tensor, ...]
    b: tuple[torch.Tensor, ...]


def layer(num_tokens: int, num_slots: int = 1) -> Layer:
    torch.manual_seed(0)
    a = tuple(torch.randn(num_slots, 1, RANK, WIDTH) for _ in SLICES)
    b = tuple(torch.randn(num_slots, 1, size, RANK) for size in SLICES)
    return Layer(torch.randn(num_tokens, sum(SLICES)), torch.randn(num_tokens, WIDTH), a, b)


def applied(kind: type[PunicaWrapperCPU], given: Layer, slots: list[int], scale: float = SCALE) -> torch.Tensor:
    wrapper: Any = kind(max_num_batched_tokens=64, max_batches=64, device="cpu")
    wrapper._token_lora_indices[: len(slots)] = torch.tensor(slots)
    wrapper.indices_len[0] = len(slots)
    wrapper.is_prefill = False
    y = given.y.clone()
    wrapper.add_lora_linear(y, given.x, given.a, given.b, scale, SLICES)
    return y


def both(given: Layer, slots: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    return applied(MatmulPunicaWrapper, given, slots), applied(PunicaWrapperCPU, given, slots)


def bound(given: Layer, slots: list[int]) -> torch.Tensor:
    """How far two right answers y + scale (x A^T) B^T may lie apart, for each element.

    Each element has gone through a sum over the layer's width, the scale, a sum over the rank, and the sum with y: as
    many roundings, one after the other. What they are relative to is the same expression with every sign taken away,
    about a thousand here. Both answers may be off by that. For a token without an adapter it is the
    bound of the answer with the last slot's weights.
    """
    sizes, sides = torch.zeros_like(given.y), list(zip(given.a, given.b, strict=True))
    for token, slot in enumerate(slots):
        deltas = [b[slot, 0].abs() @ (a[slot, 0].abs() @ given.x[token].abs()) for a, b in sides]
        sizes[token] = given.y[token].abs() + SCALE * torch.cat(deltas)
    return 2 * gamma(WIDTH + 1 + RANK + 1) * sizes


def least_over(one: torch.Tensor, other: torch.Tensor, bounds: torch.Tensor) -> float:
    """How many times over the bound a fault comes out in the token where it shows least."""
    return min(times_over(*token) for token in zip(one, other, bounds, strict=True))


@pytest.mark.parametrize("num_tokens", [1, 7, 40])
def test_one_adapter_gives_what_vllms_gather_gives(num_tokens: int) -> None:
    given, slots = layer(num_tokens), [0] * num_tokens
    ours, theirs = both(given, slots)
    assert times_over(ours, theirs, bound(given, slots)) <= 1
    # A scale that was forgotten, and an adapter that was.
    for fault in (applied(MatmulPunicaWrapper, given, slots, scale=1.0), given.y):
        assert least_over(fault, theirs, bound(given, slots)) >= FAULT


def test_tokens_without_an_adapter_stay_as_they_are() -> None:
    given, mixed, adapted = layer(4), [0, -1, 0, -1], [0] * 4
    ours, all_adapted = (applied(MatmulPunicaWrapper, given, slots) for slots in (mixed, adapted))
    # The same weights in a product of two rows and of four: these may be added up in another order.
    assert times_over(ours[::2], all_adapted[::2], bound(given, adapted)[::2]) <= 1
    # Nothing is added to the others, so nothing is rounded.
    assert torch.equal(ours[1::2], given.y[1::2])
    # Taken for the last slot, as vLLM takes -1, they would have got its weights.
    assert least_over(all_adapted[1::2], given.y[1::2], bound(given, adapted)[1::2]) >= FAULT


@pytest.mark.parametrize("slots", [[0, 1, 1, 0], [1, 1, 1, 1], [2, -1, 0, 2]])
def test_each_token_gets_its_own_adapter(slots: list[int]) -> None:
    given, adapted = layer(len(slots), num_slots=3), [slot >= 0 for slot in slots]
    allowed = bound(given, slots)[adapted]
    ours, theirs = (answer[adapted] for answer in both(given, slots))
    assert times_over(ours, theirs, allowed) <= 1
    # Each token with its neighbour's adapter.
    of_the_next_slot = applied(MatmulPunicaWrapper, given, [(slot + 1) % 3 for slot in slots])
    assert least_over(of_the_next_slot[adapted], theirs, allowed) >= FAULT


def test_a_base_request_beside_an_adapter_s_is_answered_by_the_base() -> None:
    given, slots = layer(2, num_slots=3), [2, -1]
    ours, theirs = both(given, slots)
    assert torch.equal(ours[1], given.y[1])
    # vLLM's own takes slot -1 for the last one: the base would answer with its weights.
    assert times_over(theirs[1], given.y[1], bound(given, slots)[1]) >= FAULT
