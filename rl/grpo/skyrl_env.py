"""SkyRL-Gym adapter: one maze episode as chat messages with one PNG a turn. Wiring, no rules of its own."""

from __future__ import annotations

from typing import Any

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType
from skyrl_gym.envs.registration import registry

from rl.maze.episode import Episode, Seen
from rl.maze.pictures import image_message
from rl.maze.score import Outcome
from rl.settings import MazeSettings

ENV_CLASS = "maze_2d"


class MazeTextEnv(BaseTextEnv):
    """``extras`` holds ``seed``, ``maze`` (MazeSettings as JSON), ``parsing`` and, added by the generator,
    ``max_turns``.
    """

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        assert extras is not None, "the dataset row carries seed and maze"
        maze = MazeSettings.model_validate_json(extras["maze"])
        self.max_turns: int = extras["max_turns"]
        self._episode = Episode(int(extras["seed"]), maze, extras["parsing"], self.max_turns)

    def init(self, prompt: ConversationType) -> tuple[ConversationType, dict[str, Any]]:
        return self._messages(self._episode.start()), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        self.turns += 1
        seen = self._episode.step(action)
        observations = [] if seen.done else self._messages(seen)
        return BaseTextEnvStepOutput(observations=observations, reward=seen.reward, done=seen.done, metadata={})  # type: ignore[call-arg]

    @staticmethod
    def _messages(seen: Seen) -> Any:
        return [image_message(seen.text, seen.png)]

    def outcome(self) -> Outcome:
        """What the episode came to so far."""
        return self._episode.outcome()

    def get_metrics(self) -> dict[str, Any]:
        outcome = self.outcome()
        return {
            "outcome": outcome,
            "solved": float(outcome.solved),
            "num_turns": outcome.num_turns,
            "unparsable_replies": outcome.unparsable_replies,
        }

    def close(self) -> None:
        self._episode.close()


def register_env() -> None:
    """Make ``maze_2d`` known to SkyRL-Gym in this process; a second call changes nothing."""
    if ENV_CLASS not in registry:
        skyrl_gym.register(id=ENV_CLASS, entry_point="rl.grpo.skyrl_env:MazeTextEnv")
