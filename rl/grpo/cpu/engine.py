"""vLLM's CPU worker with a plain matrix product for each active adapter.

vLLM's CPU LoRA (0.29, 0.30) copies the adapter's weights once per token and multiplies each copy by its token; profiled
on this project's rollouts that was 73% of the worker's time. In a mixed batch it also takes "no adapter" (-1) for the
last slot, so that a full server's base requests get an adapter's weights.

The worker is chosen by vLLM's own ``worker_cls``, the operations by its platform's ``get_punica_wrapper``. The engine
that trains and the one that serves both use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.platforms import current_platform
from vllm.v1.worker.cpu_worker import CPUWorker


class MatmulPunicaWrapper(PunicaWrapperCPU):
    """LoRA as two matrix products per adapter in the batch."""

    def add_lora_linear(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: tuple[torch.Tensor, ...],
        lora_b_stacked: tuple[torch.Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        *,
        buffer: tuple[torch.Tensor, ...] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add ``scale * x A^T B^T`` to each slice of ``y`` in place, each token with its own adapter or none.

        Shapes: y [..., sum of slices], x [..., in], A [slots, 1, rank, in], B [slots, 1, slice, rank].
        """
        tokens, output = x.reshape(-1, x.shape[-1]), y.view(-1, y.shape[-1])
        for slot, rows in _groups(self.token_lora_indices[: tokens.shape[0]]):
            chosen, start = tokens[rows], 0
            for a, b, size in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
                output[rows, start : start + size] += (chosen @ a[slot, 0].T * scale) @ b[slot, 0].T
                start += size


def _groups(slot_of_token: torch.Tensor) -> Iterator[tuple[int, Any]]:
    """Adapter slots in use with their rows; -1 is a token without an adapter. Mostly all rows are one group."""
    first = int(slot_of_token[0])
    if bool((slot_of_token == first).all()):
        groups: dict[int, Any] = {first: slice(None)}
    else:
        groups = {slot: slot_of_token == slot for slot in slot_of_token.unique().tolist()}
    yield from ((slot, rows) for slot, rows in groups.items() if slot >= 0)


class MatmulLoraCPUWorker(CPUWorker):
    """vLLM's CPU worker, with MatmulPunicaWrapper in its process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        name = f"{MatmulPunicaWrapper.__module__}.{MatmulPunicaWrapper.__qualname__}"
        type(current_platform).get_punica_wrapper = classmethod(lambda cls: name)  # type: ignore[assignment, method-assign]
        super().__init__(*args, **kwargs)
