"""Greedy play of whole evaluation sets with a transformers model: the yardstick during fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import torch
from PIL import Image

from rl.maze_env import Maze2DEnv, register_maze_2d
from rl.prompts import opening_message, parse_reply
from rl.score import Outcome, action_letter
from rl.settings import MazeSettings


@dataclass
class _Episode:
    seed: int
    env: Maze2DEnv
    messages: list[dict[str, object]]
    images: list[Image.Image]
    actions: str = ""
    unparsable_replies: int = 0
    solved: bool = False
    done: bool = field(default=False)

    def step(self, reply: str, max_turns: int) -> None:
        action = parse_reply(reply, "tolerant")
        self.actions += action_letter(action)
        image, reward, terminated, _, info = self.env.step(reply)
        self.unparsable_replies += self.actions[-1] == "?"
        self.solved = terminated and reward == 1.0
        self.done = terminated or len(self.actions) >= max_turns
        self.images.append(Image.fromarray(image))
        self.messages += [{"role": "assistant", "content": reply}, _ask(info["env_feedback"])]


def _ask(text: str) -> dict[str, object]:
    return {"role": "user", "content": [{"type": "text", "text": text}, {"type": "image"}]}


def _start(seed: int, maze: MazeSettings) -> _Episode:
    env = gymnasium.make(maze.env_id, **maze.env_kwargs()).unwrapped
    assert isinstance(env, Maze2DEnv)
    image, _ = env.reset(seed=seed)
    return _Episode(seed, env, [_ask(opening_message(env.get_prompt()))], [Image.fromarray(image)])


@torch.no_grad()
def play_greedily(
    model: Any,
    processor: Any,
    maze: MazeSettings,
    seeds: Sequence[int],
    max_turns: int,
    max_reply_tokens: int = 16,
) -> list[Outcome]:
    """Play one episode per seed, all in step, taking the most probable token each time.

    ``model`` is a Qwen3VLForConditionalGeneration (or peft around one), ``processor`` its Qwen3VLProcessor.
    """
    register_maze_2d()
    episodes = [_start(seed, maze) for seed in seeds]
    processor.tokenizer.padding_side = "left"
    while playing := [episode for episode in episodes if not episode.done]:
        texts = [processor.apply_chat_template(e.messages, tokenize=False, add_generation_prompt=True) for e in playing]
        images = [image for episode in playing for image in episode.images]
        inputs = processor(text=texts, images=images, padding=True, return_tensors="pt")
        output = model.generate(**inputs, max_new_tokens=max_reply_tokens, do_sample=False)
        replies = processor.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        for episode, reply in zip(playing, replies, strict=True):
            episode.step(reply, max_turns)
    return [
        Outcome(seed=e.seed, solved=e.solved, actions=e.actions, unparsable_replies=e.unparsable_replies)
        for e in episodes
    ]
