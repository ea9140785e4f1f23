"""vLLM's CPU worker with a plain matrix product where one adapter is active.

vLLM 0.30's CPU LoRA copies the adapter's weights once per token and multiplies each copy by its token; profiled on
this project's rollouts that was 73% of the worker's time. With ``max_loras=1`` every token uses the same adapter or
none. The worker is chosen by vLLM's own ``worker_cls``, the operations by its platform's ``get_punica_wrapper``.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.platforms import current_platform
from vllm.v1.worker.cpu_worker import CPUWorker


class SingleAdapterPunicaWrapper(PunicaWrapperCPU):
    """LoRA as two matrix products; more adapter slots than one fall back to vLLM's gather."""

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
        """Add ``scale * x A^T B^T`` to each slice of ``y`` in place, for the tokens that use the adapter.

        Shapes: y [..., sum of slices], x [..., in], A [1, 1, rank, in], B [1, 1, slice, rank].
        """
        if lora_a_stacked[0].shape[0] != 1:
            super().add_lora_linear(y, x, lora_a_stacked, lora_b_stacked, scale, output_slices, buffer=buffer, **kwargs)
            return
        tokens = x.reshape(-1, x.shape[-1])
        adapted = self.token_lora_indices[: tokens.shape[0]] >= 0
        if not bool(adapted.any()):
            return
        if not bool(adapted.all()):
            tokens = tokens * adapted.unsqueeze(-1)
        output, start = y.view(-1, y.shape[-1]), 0
        for a, b, size in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
            output[:, start : start + size] += (tokens @ a[0, 0].T * scale) @ b[0, 0].T
            start += size


class SingleAdapterCPUWorker(CPUWorker):
    """vLLM's CPU worker, with SingleAdapterPunicaWrapper in its process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        name = f"{SingleAdapterPunicaWrapper.__module__}.{SingleAdapterPunicaWrapper.__qualname__}"
        type(current_platform).get_punica_wrapper = classmethod(lambda cls: name)  # type: ignore[assignment, method-assign]
        super().__init__(*args, **kwargs)
