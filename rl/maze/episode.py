"""One maze, played turn by turn with text replies: what training, evaluation and the endpoint's players share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from rl.maze.environment import register_maze_2d
from rl.maze.pictures import png_bytes
from rl.maze.prompts import (
    EXECUTED,
    HIT_WALL,
    ParsingMode,
    Unparsable,
    action_text,
    opening_message,
    parse_reply,
    unparsable_feedback,
)
from rl.maze.score import Outcome, Said, action_letter
from rl.settings import MazeSettings


@dataclass(frozen=True)
class Seen:
    """What the agent is shown after a turn."""

    text: str
    image: np.ndarray
    """uint8 [H, W, 3]."""
    png: bytes
    """The same picture, encoded."""
    reward: float
    done: bool


class Episode:
    """Plays the Gymnasium environment that the settings name: the project's ``maze_2d`` or VisGym's.

    A reply without an action costs its turn and never reaches the environment. The reward is the environment's own.
    """

    def __init__(self, seed: int, maze: MazeSettings, parsing: ParsingMode, max_turns: int) -> None:
        register_maze_2d()
        self._env: Any = gymnasium.make(maze.env_id, **maze.env_kwargs()).unwrapped
        self._seed, self._max_turns = seed, max_turns
        self._parsing: ParsingMode = parsing
        self._actions = ""
        self._said: list[Said] = []
        self._solved = False

    def start(self) -> Seen:
        """The task and the first picture."""
        self._env.reset(seed=self._seed)
        return self._seen(opening_message(self._env.get_prompt()), reward=0.0, done=False)

    def step(self, reply: str) -> Seen:
        """Carry out one reply."""
        parsed = parse_reply(reply, self._parsing)
        self._actions += action_letter(parsed)
        reward, terminated = 0.0, False
        if isinstance(parsed, Unparsable):
            feedback = unparsable_feedback(parsed)
        else:
            _, paid, terminated, _, info = self._env.step(action_text(parsed))
            reward, feedback = float(paid), str(info["env_feedback"])
        self._note(reply, None if isinstance(parsed, Unparsable) else action_text(parsed), feedback)
        self._solved = terminated and reward == 1.0
        done = terminated or len(self._actions) >= self._max_turns
        return self._seen(feedback, reward, done)

    def outcome(self) -> Outcome:
        """What the episode came to so far."""
        unparsable = self._actions.count("?")
        return Outcome(
            seed=self._seed,
            solved=self._solved,
            actions=self._actions,
            unparsable_replies=unparsable,
            said=tuple(self._said),
        )

    def _note(self, reply: str, action: str | None, feedback: str) -> None:
        """Keep what the turn's letter does not tell."""
        is_usual = feedback in (EXECUTED, HIT_WALL)
        if reply != action or not is_usual:
            # Half of a surrogate pair, which JSON over HTTP can spell, is no text that a record can be written with.
            text = reply.encode("utf-8", "replace").decode()
            said = Said(
                turn=len(self._actions) - 1,
                reply=None if reply == action else text,
                feedback=None if is_usual else feedback,
            )
            self._said.append(said)

    def _seen(self, text: str, reward: float, done: bool) -> Seen:
        image = self._env.render()
        # VisGym's environments have no PNG of their own.
        png = self._env.png() if hasattr(self._env, "png") else png_bytes(image)
        return Seen(text, image, png, reward, done)

    def close(self) -> None:
        self._env.close()
