"""A Qwen3-VL of about a million parameters with its own tokenizer and processor, random weights.

Every part is the class that the 8B model uses (configuration, tokenizer with chat template, image
processor, processor), so transformers, peft, vLLM and SkyRL load it without knowing that it is small.
One maze cell of 8 px is exactly one merged visual token: four patches of 4 px, merged 2 x 2.
"""

from __future__ import annotations

from itertools import product

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from rl.maze.grid import Direction
from rl.maze.prompts import (
    EXECUTED,
    HIT_WALL,
    Move,
    Stop,
    Unparsable,
    action_text,
    opening_message,
    task_prompt,
    unparsable_feedback,
)

CELL_PX = 8
_PATCH_PX, _MERGE = 4, 2
_PAD, _END = "<|endoftext|>", "<|im_end|>"
_SPECIAL = [
    _PAD,
    "<|im_start|>",
    _END,
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
# One pre-token per word with its leading space, digits apart, so that an action is three tokens.
_PRE_TOKEN = r" ?\d| ?[^\s\d]+|\s+"
_CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content is string -%}{{ message.content }}"
    "{%- else -%}{%- for part in message.content -%}"
    "{%- if part.type == 'text' -%}{{ part.text }}"
    "{%- elif part.type in ('image', 'image_url') or 'image' in part or 'image_url' in part -%}"
    "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{%- endif -%}{%- endfor -%}{%- endif -%}"
    "{{ '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)


def build_processor(max_image_cells: int = 21 * 21) -> Qwen3VLProcessor:
    """Tokenizer, image and video processor in one; the vocabulary is trained on the maze protocol's own text."""
    tokenizer = _build_tokenizer()
    pixels = {"shortest_edge": CELL_PX**2, "longest_edge": max_image_cells * CELL_PX**2}
    vision = {"patch_size": _PATCH_PX, "merge_size": _MERGE, "temporal_patch_size": 2, "size": pixels}
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**vision),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**vision),
        chat_template=_CHAT_TEMPLATE,
    )


def _build_tokenizer() -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [
            pre_tokenizers.Split(Regex(_PRE_TOKEN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        min_frequency=2,
        special_tokens=_SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(_corpus(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=_END,
        pad_token=_PAD,
        additional_special_tokens=[token for token in _SPECIAL if token not in (_PAD, _END)],
        chat_template=_CHAT_TEMPLATE,
        model_max_length=8192,
        clean_up_tokenization_spaces=False,
    )


def _corpus() -> list[str]:
    prompts = [opening_message(task_prompt(h, w)) for h, w in product((5, 7, 9, 11, 13), repeat=2)]
    feedback = [EXECUTED, HIT_WALL, unparsable_feedback(Unparsable("No action tuple was found in the reply."))]
    actions = [action_text(action) for action in (*map(Move, Direction), Stop())]
    return [*prompts, *(feedback + actions + ["user\n", "assistant\n", "system\n"]) * 100]


def build_model(processor: Qwen3VLProcessor, seed: int) -> Qwen3VLForConditionalGeneration:
    """A randomly initialised model whose token ids fit ``processor``; equal seeds give equal weights."""
    tokenizer = processor.tokenizer
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in _SPECIAL}
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 128,
            "intermediate_size": 384,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "max_position_embeddings": 8192,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "mrope_section": [12, 10, 10],
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": True,
            "pad_token_id": ids[_PAD],
            "eos_token_id": ids[_END],
        },
        vision_config={
            "depth": 4,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "patch_size": _PATCH_PX,
            "spatial_merge_size": _MERGE,
            "temporal_patch_size": 2,
            "out_hidden_size": 128,
            "num_position_embeddings": 24 * 24,
            "deepstack_visual_indexes": [0],
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(config)
    _widen_vision(model.model.visual)
    _sharpen_attention(model.model.language_model)
    model.generation_config = GenerationConfig(eos_token_id=ids[_END], pad_token_id=ids[_PAD], do_sample=False)
    return model


@torch.no_grad()
def _widen_vision(tower: torch.nn.Module) -> None:
    """Draw the vision tower's weights with variance 1 / fan-in.

    Qwen's 0.02 suits widths of a thousand; at a width of 64, and without the text model's query and key norms, it
    leaves every patch attending to all others alike for hundreds of steps.
    """
    for module in tower.modules():
        if isinstance(module, torch.nn.Embedding):
            module.weight.normal_(0, 0.5)
        elif isinstance(module, torch.nn.Linear | torch.nn.Conv3d):
            module.weight.normal_(0, module.weight[0].numel() ** -0.5)


@torch.no_grad()
def _sharpen_attention(text_model: torch.nn.Module) -> None:
    """Start the query and key norms at 1.2, not 1.

    Normed queries and keys bound a logit by gain^2 * sqrt(head_dim): 8 at a width of 64, where Qwen has 11.3 at 128.
    An episode holds over a thousand tokens, and one of them must be able to win.
    """
    for name, parameter in text_model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            parameter.fill_(1.2)
