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
from rl.maze.grid import Direction, Maze, any_free_cell, moved, shortest_path
from rl.maze.pictures import render
from rl.maze.prompts import EXECUTED, HIT_WALL, Move, Stop, action_text, opening_message, task_prompt
from rl.maze.sources import maze_for
from rl.settings import MazeSettings

Batch = dict[str, torch.Tensor]

MAX_REFUSED = 10_000
"""Mazes drawn in a row without one that will do, before drawing is given up."""


@dataclass(frozen=True)
class Turn:
    """What the agent saw and what it answered."""

    text: str
    image: np.ndarray
    reply: str
    learned: bool = True
    """False for a stumble: it stands in the history, and is not imitated."""


@dataclass(frozen=True)
class Walker:
    """Who walks: the shortest path, with two ways to lose turns."""

    stumble_rate: float = 0.0
    """Share of turns with a random direction. Not imitated: the replies after it show the way back, from a wall or a
    wrong turn (the idea of DAgger, Ross et al., AISTATS 2011)."""
    look_back_rate: float = 0.0
    """Share of corners before which the walker takes one step back and returns. Imitated, so that a model picks the
    habit up: it then knows the way and loses two turns."""
    anywhere_rate: float = 0.0
    """Share of walks that start on any free cell in place of the maze's start."""


def oracle_walk(maze: Maze, cell_px: int) -> list[Turn]:
    """The shortest path as an episode, with the stop at its end."""
    return walk(maze, cell_px, np.random.default_rng(0), Walker(), max_turns=10**6)


def walk(maze: Maze, cell_px: int, rng: np.random.Generator, walker: Walker, max_turns: int) -> list[Turn]:
    """An episode of ``walker``; it ends with the stop on the target, or without one at ``max_turns``."""
    anywhere = walker.anywhere_rate > 0 and rng.random() < walker.anywhere_rate
    agent = any_free_cell(maze, rng) if anywhere else maze.start
    text, turns, made = opening_message(task_prompt(*maze.shape_HW)), [], []
    while len(turns) < max_turns:
        path = shortest_path(maze, agent)
        image = render(maze, agent, cell_px)
        stumbles = rng.random() < walker.stumble_rate
        if not path and not stumbles:
            return [*turns, Turn(text, image, action_text(Stop()))]
        if stumbles:
            direction = Direction(int(rng.integers(len(Direction))))
        elif _at_corner(made, path) and rng.random() < walker.look_back_rate:
            direction = made[-1].opposite
        else:
            direction = path[0]
        turns.append(Turn(text, image, action_text(Move(direction)), learned=not stumbles))
        made.append(direction)
        step = moved(agent, direction)
        text = EXECUTED if maze.is_free(step) else HIT_WALL
        agent = step if maze.is_free(step) else agent
    return turns


def _at_corner(made: Sequence[Direction], path: Sequence[Direction]) -> bool:
    """Whether the walker has come straight (two equal moves, so it has not just looked back) and must now turn."""
    return len(made) >= 2 and made[-2] == made[-1] and path[0] not in (made[-1], made[-1].opposite)


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
            said = tokenizer.encode(turn.reply + "<|im_end|>", add_special_tokens=False)
            ids += seen + said
            labels += [-100] * len(seen) + (said if turn.learned else [-100] * len(said))
        return ids, labels


def training_mazes(maze: MazeSettings, seed: int, held_out: set[str], max_turns: int) -> Iterator[Maze]:
    """Endless mazes that an oracle solves in time and whose fingerprint is not held out.

    Raises ValueError where none of MAX_REFUSED drawn one after the other will do.
    """
    rng = np.random.default_rng(seed)
    num_refused = 0
    while num_refused < MAX_REFUSED:
        drawn = maze_for(int(rng.integers(2**63)), maze)
        num_refused += 1
        if drawn.fingerprint not in held_out and len(shortest_path(drawn)) < max_turns:
            num_refused = 0
            yield drawn
    raise ValueError(
        f"of {MAX_REFUSED} mazes of {maze.height}x{maze.width} none can be solved within {max_turns} turns without "
        f"being one of the {len(held_out)} held out; raise max_turns, or take larger mazes"
    )


def walk_batches(walks: Iterator[list[Turn]], batch_size: int) -> Iterator[list[list[Turn]]]:
    """Batches of walks with equally many turns, in the order in which a length first fills a batch."""
    waiting: dict[int, list[list[Turn]]] = defaultdict(list)
    for walk in walks:
        same_length = waiting[len(walk)]
        same_length.append(walk)
        if len(same_length) == batch_size:
            yield waiting.pop(len(walk))
