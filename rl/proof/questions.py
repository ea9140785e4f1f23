"""Probe conversations: what an adapter is asked on the training side and at the served endpoint alike. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rl.maze.episode import Episode
from rl.maze.grid import shortest_path
from rl.maze.pictures import image_message
from rl.maze.prompts import Move, action_text
from rl.maze.sources import maze_for
from rl.proof.settings import Questions

Conversation = list[dict[str, Any]]


def probe_conversations(questions: Questions) -> Iterator[Conversation]:
    """Conversations of one to four turns along shortest paths, one maze each; the same ones wherever they are made.

    Seeds run downward from 2**62, where neither training nor evaluation draws.
    """
    maze = questions.maze
    for number in range(questions.num_probes):
        seed = 2**62 - 1 - number
        path = shortest_path(maze_for(seed, maze))
        episode = Episode(seed, maze, "tolerant", max_turns=len(path) + 1)
        seen = episode.start()
        messages: Conversation = [image_message(seen.text, seen.png)]
        for direction in path[: number % 4]:
            reply = action_text(Move(direction))
            seen = episode.step(reply)
            messages += [{"role": "assistant", "content": reply}, image_message(seen.text, seen.png)]
        yield messages
