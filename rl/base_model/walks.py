"""Oracle walks as training batches: whole multi-turn episodes, tokenised exactly as the engine will see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from transformers import Qwen3VLProcessor

from rl.base_model.build import CELL_PX
from rl.maze import Maze, generate_maze, moved, shortest_path
from rl.prompts import EXECUTED, Move, Stop, action_text, opening_message, task_prompt
from rl.render import render
from rl.settings import MazeSettings

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Turn:
    """What the agent saw and what it answered; ``reply`` is None for a turn still to be answered."""

    text: str
    image: np.ndarray
    reply: str | None


def oracle_walk(maze: Maze, cell_px: int) -> list[Turn]:
    """The shortest path as an episode, with the stop at its end."""
    agent, text, turns = maze.start, opening_message(task_prompt(*maze.shape_HW)), []
    for direction in shortest_path(maze):
        turns.append(Turn(text, render(maze, agent, cell_px), action_text(Move(direction))))
        agent, text = moved(agent, direction), EXECUTED
    return [*turns, Turn(text, render(maze, agent, cell_px), action_text(Stop()))]


class EpisodeEncoder:
    """Turns episodes into model inputs, with labels on the replies only."""

    def __init__(self, processor: Qwen3VLProcessor) -> None:
        self._processor = processor
        tokenizer = processor.tokenizer
        self._image_id: int = tokenizer.convert_tokens_to_ids("<|image_pad|>")
        self._pad_id: int = tokenizer.pad_token_id

    def __call__(self, episodes: Sequence[Sequence[Turn]]) -> Batch:
        """Right-padded tensors: ids, labels and masks [B, T], pixels and grids of all images in order."""
        rows = [self._tokens(episode) for episode in episodes]
        length = max(len(ids) for ids, _ in rows)
        pad = [length - len(ids) for ids, _ in rows]
        input_ids = torch.tensor([ids + [self._pad_id] * n for (ids, _), n in zip(rows, pad, strict=True)])
        labels = torch.tensor([labels + [-100] * n for (_, labels), n in zip(rows, pad, strict=True)])
        mask = torch.tensor([[1] * len(ids) + [0] * n for (ids, _), n in zip(rows, pad, strict=True)])
        pictures = [Image.fromarray(turn.image) for episode in episodes for turn in episode]
        features = self._processor.image_processor(pictures, return_tensors="pt")
        return {
            "input_ids": input_ids,
            "labels": labels,
            "attention_mask": mask,
            "mm_token_type_ids": (input_ids == self._image_id).long(),
            "pixel_values": features["pixel_values"],
            "image_grid_thw": features["image_grid_thw"],
        }

    def _tokens(self, episode: Sequence[Turn]) -> tuple[list[int], list[int]]:
        """Ids and labels of one episode; label -100 is not learned."""
        tokenizer = self._processor.tokenizer
        ids: list[int] = []
        labels: list[int] = []
        for turn in episode:
            cells = turn.image.shape[0] * turn.image.shape[1] // CELL_PX**2
            image = "<|vision_start|>" + "<|image_pad|>" * cells + "<|vision_end|>"
            newline = "\n" if ids else ""
            asked = f"{newline}<|im_start|>user\n{turn.text}{image}<|im_end|>\n<|im_start|>assistant\n"
            seen = tokenizer.encode(asked, add_special_tokens=False)
            said = [] if turn.reply is None else tokenizer.encode(turn.reply + "<|im_end|>", add_special_tokens=False)
            ids += seen + said
            labels += [-100] * len(seen) + said
        return ids, labels


def training_mazes(maze: MazeSettings, seed: int, held_out: set[str], max_turns: int) -> Iterator[Maze]:
    """Endless mazes that an oracle solves in time and whose fingerprint is not held out."""
    rng = np.random.default_rng(seed)
    while True:
        drawn = generate_maze(int(rng.integers(2**63)), maze.height, maze.width)
        if drawn.fingerprint not in held_out and len(shortest_path(drawn)) < max_turns:
            yield drawn


def walk_batches(mazes: Iterator[Maze], cell_px: int, batch_size: int) -> Iterator[list[list[Turn]]]:
    """Batches of walks of equal length, in the order in which a length first fills a batch: no padding."""
    waiting: dict[int, list[list[Turn]]] = defaultdict(list)
    for maze in mazes:
        walk = oracle_walk(maze, cell_px)
        same_length = waiting[len(walk)]
        same_length.append(walk)
        if len(same_length) == batch_size:
            yield waiting.pop(len(walk))
