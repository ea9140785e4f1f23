"""Training passes without padding: sequences of like length share a micro-batch, and its empty columns are cut off.

SkyRL pads a whole step's sequences to the longest one and takes micro-batches in the order of the mazes. Episodes
differ in length by a factor of four, and attention costs the square of it. Here each worker sorts its own rows, cuts
the columns that are padding in every row of a micro-batch before the model sees them, and hands results back in the
order and shape that SkyRL expects. Sums over a mini-batch do not depend on its order: the update is the same (tested).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn.functional import pad


def by_length(attention_mask: torch.Tensor) -> torch.Tensor:
    """Rows [B] of a mask [B, T], the longest sequence first: the pass that needs most memory comes first."""
    return attention_mask.sum(dim=1).argsort(descending=True, stable=True)


def rows_of(batch: Any, order: torch.Tensor) -> Any:
    """A TensorBatch with its rows in this order."""
    picked = type(batch)({name: None if field is None else field[order] for name, field in batch.items()})
    picked.metadata = batch.metadata
    return picked


def restored(items: Sequence[Any], order: torch.Tensor) -> list[Any]:
    """Per-row results back in the order before ``order`` was taken."""
    return [items[position] for position in order.argsort().tolist()]


def grouped(call: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
    """``call(data, ...)`` on rows sorted by length; its per-row outputs come back in the order of ``data``."""
    order = by_length(data["attention_mask"])
    output = call(rows_of(data, order), *args, **kwargs)
    if not output.loss_fn_outputs:
        return output
    return replace(output, loss_fn_outputs=restored(output.loss_fn_outputs, order))


def trimmed(forward: Any) -> Any:
    """SkyRL's ``HFModelWrapper.forward`` without the columns that are padding in every row.

    SkyRL pads on the left: prompt and response end at the right edge, and ``num_actions`` columns there hold every
    response. Log-probabilities of cut columns are 0; the loss mask leaves them out.
    """

    def forward_trimmed(
        sequences: torch.Tensor,
        num_actions: int,
        attention_mask: torch.Tensor,
        *args: Any,
        return_output: bool = False,
        **kwargs: Any,
    ) -> Any:
        cut = int(attention_mask.any(dim=0).int().argmax())
        # The first token of all has no log-probability: nothing comes before it.
        scored = min(num_actions, sequences.shape[1] - cut - 1)
        result = forward(
            sequences[:, cut:], scored, attention_mask[:, cut:], *args, return_output=return_output, **kwargs
        )
        log_probs, output = result if return_output else (result, None)
        log_probs = pad(log_probs, (num_actions - scored, 0))
        if output is None:
            return log_probs
        if "entropy" in output:
            output["entropy"] = pad(output["entropy"], (cut, 0))
        return log_probs, output

    return forward_trimmed


def length_grouped(worker: type) -> type:
    """A SkyRL FSDP policy worker class that trains without padding."""

    class LengthGroupedPolicyWorker(worker):
        def init_model(self, *args: Any, **kwargs: Any) -> None:
            super().init_model(*args, **kwargs)
            self.model.forward = trimmed(self.model.forward)

        def forward(self, data: Any, *args: Any, **kwargs: Any) -> Any:
            return grouped(super().forward, data, *args, **kwargs)

        def forward_backward(self, data: Any, *args: Any, **kwargs: Any) -> Any:
            return grouped(super().forward_backward, data, *args, **kwargs)

    return LengthGroupedPolicyWorker
