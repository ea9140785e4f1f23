"""Training without padding gives what SkyRL's padded passes give: log-probabilities, gradients, order of rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from skyrl.backends.skyrl_train.distributed.dispatch import WorkerOutput
from skyrl.backends.skyrl_train.training_batch import TensorList, TrainingInputBatch
from transformers import AutoModelForImageTextToText

from rl.grpo.length_groups import by_length, grouped, rows_of, trimmed
from tests.train.conftest import BASE_MODEL
from tests.train.float_bounds import FAULT, times_over, weights_off_by_rounding

pytestmark = pytest.mark.slow_s(20)

LENGTHS = ((3, 5), (2, 9), (4, 2))
"""Prompt and response of each row, in tokens."""
WIDTH, NUM_ACTIONS = 18, 14


def text_batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows as SkyRL pads them, all ending at the right edge; a longer sequence of another micro-batch set the width."""
    torch.manual_seed(0)
    ids = torch.randint(10, 600, (len(LENGTHS), WIDTH))
    mask = torch.zeros_like(ids)
    is_response = torch.zeros(len(LENGTHS), NUM_ACTIONS, dtype=torch.bool)
    for row, (prompt, response) in enumerate(LENGTHS):
        mask[row, -prompt - response :] = 1
        is_response[row, -response:] = True
    return ids, mask, is_response


@pytest.fixture
def wrapper() -> Any:
    from skyrl.backends.skyrl_train.workers.model_wrapper import HFModelWrapper

    model = AutoModelForImageTextToText.from_pretrained(BASE_MODEL, dtype=torch.float32).train()
    made: Any = HFModelWrapper(model, use_torch_compile=False)
    made.is_vlm, made.remove_microbatch_padding, made.sequence_parallel_size = True, False, 1
    return made


Scores = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def scored(wrapper: Any, forward: Any) -> Scores:
    """Log-probabilities and entropies of the responses, and the gradient of one weight."""
    ids, mask, is_response = text_batch()
    wrapper.zero_grad()
    log_probs, output = forward(ids, NUM_ACTIONS, attention_mask=mask, return_output=True, compute_entropy=True)
    log_probs[is_response].sum().backward()
    entropy = output["entropy"][:, -NUM_ACTIONS - 1 : -1]
    weight = wrapper.model.model.language_model.layers[0].self_attn.q_proj.weight
    return log_probs.detach()[is_response], entropy.detach()[is_response], weight.grad.clone()


def bounds(wrapper: Any, padded: Scores) -> list[float]:
    """How far two right passes may lie apart: log-probabilities, entropies and gradient, each by its largest element.

    A pass sums over 128 hidden units or 384 in the middle of each MLP, four layers deep; attention's sums are shorter
    (64 and at most 18) and take what was already off by more. Both passes may be off by what such weights move, at most
    1e-4 where log-probabilities reach 11. Three draws of signs: one may happen to move little.
    """
    moved: list[list[float]] = []
    for seed in range(3):
        with weights_off_by_rounding(wrapper.model.model.language_model, seed):
            off = scored(wrapper, wrapper.forward)
        moved.append([float((one - other).abs().max()) for one, other in zip(off, padded, strict=True)])
    return [2 * max(draws) for draws in zip(*moved, strict=True)]


def unmasked(wrapper: Any) -> Any:
    """A pass that takes padding for text."""
    return lambda ids, num, attention_mask, **kw: wrapper.forward(ids, num, torch.ones_like(attention_mask), **kw)


def cut_too_far(wrapper: Any) -> Any:
    """A pass without the first token of the longest row."""

    def forward(ids: torch.Tensor, num_actions: int, attention_mask: torch.Tensor, **kwargs: Any) -> Any:
        longest = sum(max(LENGTHS, key=sum))
        attention_mask = attention_mask.clone()
        attention_mask[:, : WIDTH - longest + 1] = 0
        return wrapper.forward(ids, num_actions, attention_mask, **kwargs)

    return forward


def shifted(wrapper: Any) -> Any:
    """A pass whose results stand one column too far to the right."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        log_probs, output = wrapper.forward(*args, **kwargs)
        return log_probs.roll(1, 1), {**output, "entropy": output["entropy"].roll(1, 1)}

    return forward


def of_the_next_row(wrapper: Any) -> Any:
    """A pass whose results stand in the row after theirs."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        log_probs, output = wrapper.forward(*args, **kwargs)
        return log_probs.roll(1, 0), {**output, "entropy": output["entropy"].roll(1, 0)}

    return forward


def test_the_rows_here_are_padded_as_skyrl_pads_them() -> None:
    from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors

    prompts, responses = ([[7] * row[part] for row in LENGTHS] for part in (0, 1))
    floats: Any = [[0.0] * response for _, response in LENGTHS]
    masks = [[1] * response for _, response in LENGTHS]
    _, mask, is_response, *_ = convert_prompts_responses_to_batch_tensors(0, prompts, responses, floats, masks)
    ours, ours_response = text_batch()[1:]
    assert mask.tolist() == ours[:, -mask.shape[1] :].tolist()
    assert is_response.bool().tolist() == ours_response[:, -is_response.shape[1] :].tolist()


def test_cut_columns_change_neither_scores_nor_gradients(wrapper: Any) -> None:
    widths: list[int] = []
    wrapper.model.register_forward_pre_hook(lambda module, args: widths.append(args[0].shape[1]))
    padded, cut = scored(wrapper, wrapper.forward), scored(wrapper, trimmed(wrapper.forward))
    assert widths == [WIDTH, 2 + 9]
    allowed = bounds(wrapper, padded)
    for theirs, ours, bound in zip(padded, cut, allowed, strict=True):
        assert times_over(ours, theirs, bound) <= 1
    for fault in (unmasked, cut_too_far, shifted, of_the_next_row):
        for theirs, wrong, bound in zip(padded, scored(wrapper, fault(wrapper)), allowed, strict=True):
            assert times_over(wrong, theirs, bound) >= FAULT, fault.__name__


def test_without_output_the_shape_stays_what_skyrl_asked_for(wrapper: Any) -> None:
    ids, mask, _ = text_batch()
    assert trimmed(wrapper.forward)(ids, NUM_ACTIONS, mask).shape == (len(LENGTHS), NUM_ACTIONS)


def test_the_longest_row_comes_first_and_results_come_back_in_order() -> None:
    ids, mask, _ = text_batch()
    batch = TrainingInputBatch(
        {"sequences": ids, "attention_mask": mask, "pixel_values": TensorList([torch.full((1,), i) for i in range(3)])}
    )
    batch.metadata = {"response_length": NUM_ACTIONS}
    seen: list[Any] = []

    def worker(data: Any, loss_fn: str) -> Any:
        seen.append(data)
        rows = [{"logprobs": row.tolist()} for row in data["sequences"]]
        return WorkerOutput(loss_fn_outputs=rows, metrics={"loss": loss_fn})

    output = grouped(worker, batch, loss_fn="regular")
    assert seen[0]["attention_mask"].sum(dim=1).tolist() == [11, 8, 6]
    assert [int(pixels) for pixels in seen[0]["pixel_values"]] == [1, 0, 2]
    assert seen[0].metadata == batch.metadata
    assert [row["logprobs"] for row in output.loss_fn_outputs] == ids.tolist()
    assert by_length(mask).tolist() == [1, 0, 2]
    assert rows_of(batch, torch.tensor([2, 0, 1]))["sequences"].tolist() == ids[[2, 0, 1]].tolist()
