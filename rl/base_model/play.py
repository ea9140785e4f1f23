"""Greedy play of whole evaluation sets with a transformers model: the yardstick during fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image

from rl.maze.episode import Episode, Seen
from rl.maze.prompts import ParsingMode, spelled_out
from rl.maze.score import Outcome
from rl.settings import MazeSettings

PARSING: ParsingMode = "tolerant"
MAX_REPLY_TOKENS = 16


class _Conversation:
    """An episode with all that was said and shown."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self.messages: list[dict[str, object]] = []
        self.images: list[Image.Image] = []
        self.done = False
        self._show(episode.start())

    def answer(self, reply: str) -> None:
        self.messages.append({"role": "assistant", "content": spelled_out(reply)})
        self._show(self.episode.step(reply))

    def _show(self, seen: Seen) -> None:
        self.done = seen.done
        self.images.append(Image.fromarray(seen.image))
        self.messages.append({"role": "user", "content": [{"type": "text", "text": seen.text}, {"type": "image"}]})


@torch.no_grad()
def play_greedily(
    model: Any,
    processor: Any,
    maze: MazeSettings,
    seeds: Sequence[int],
    max_turns: int,
    max_reply_tokens: int = MAX_REPLY_TOKENS,
) -> list[Outcome]:
    """Play one episode per seed, all in step, taking the most probable token each time.

    ``model`` is a Qwen3VLForConditionalGeneration (or peft around one), ``processor`` its Qwen3VLProcessor.
    """
    played = [_Conversation(Episode(seed, maze, PARSING, max_turns)) for seed in seeds]
    processor.tokenizer.padding_side = "left"
    while playing := [one for one in played if not one.done]:
        texts = [
            processor.apply_chat_template(one.messages, tokenize=False, add_generation_prompt=True) for one in playing
        ]
        images = [image for one in playing for image in one.images]
        inputs = processor(text=texts, images=images, padding=True, return_tensors="pt")
        output = model.generate(**inputs, max_new_tokens=max_reply_tokens, do_sample=False)
        replies = processor.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        for one, reply in zip(playing, replies, strict=True):
            one.answer(reply)
    return [one.episode.outcome() for one in played]
