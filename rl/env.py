"""SkyRL-Gym adapter: one maze episode as chat messages with one PNG a turn. Wiring, no rules of its own."""

from __future__ import annotations

from typing import Any

import gymnasium
import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType
from skyrl_gym.envs.registration import registry

from rl.maze_env import register_maze_2d
from rl.prompts import ParsingMode, Unparsable, action_text, opening_message, parse_reply, unparsable_feedback
from rl.render import image_message
from rl.score import Outcome, action_letter
from rl.settings import MazeSettings

ENV_CLASS = "maze_2d"


class MazeTextEnv(BaseTextEnv):
    """Plays the Gymnasium environment that the row's settings name: the project's ``maze_2d`` or VisGym's.

    ``extras`` holds ``seed``, ``maze`` (MazeSettings as JSON), ``parsing`` and, added by the generator,
    ``max_turns``. The reward is the environment's own, paid at the last turn.
    """

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        assert extras is not None, "the dataset row carries seed and maze"
        register_maze_2d()
        maze = MazeSettings.model_validate_json(extras["maze"])
        self.max_turns: int = extras["max_turns"]
        self._seed: int = int(extras["seed"])
        self._parsing: ParsingMode = extras["parsing"]
        self._env = gymnasium.make(maze.env_id, **maze.env_kwargs()).unwrapped
        self._actions = ""
        self._solved = False

    def init(self, prompt: ConversationType) -> tuple[ConversationType, dict[str, Any]]:
        self._env.reset(seed=self._seed)
        text = opening_message(self._env.get_prompt())  # type: ignore[attr-defined]
        return [image_message(text, self._env.render())], {}  # type: ignore[list-item, arg-type]

    def step(self, action: str) -> BaseTextEnvStepOutput:
        self.turns += 1
        parsed = parse_reply(action, self._parsing)
        self._actions += action_letter(parsed)
        reward, terminated = 0.0, False
        if isinstance(parsed, Unparsable):
            feedback = unparsable_feedback(parsed)
        else:
            _, paid, terminated, _, info = self._env.step(action_text(parsed))
            reward, feedback = float(paid), str(info["env_feedback"])
        self._solved = terminated and reward == 1.0
        done = terminated or self.turns >= self.max_turns
        observations = [] if done else [image_message(feedback, self._env.render())]  # type: ignore[arg-type]
        return BaseTextEnvStepOutput(observations=observations, reward=reward, done=done, metadata={})  # type: ignore[typeddict-item]

    def outcome(self) -> Outcome:
        """What the episode came to so far."""
        return Outcome(
            seed=self._seed,
            solved=self._solved,
            actions=self._actions,
            unparsable_replies=self._actions.count("?"),
        )

    def get_metrics(self) -> dict[str, Any]:
        outcome = self.outcome()
        return {
            "outcome": outcome,
            "solved": float(outcome.solved),
            "num_turns": outcome.num_turns,
            "unparsable_replies": outcome.unparsable_replies,
        }

    def close(self) -> None:
        self._env.close()


def register_env() -> None:
    """Make ``maze_2d`` known to SkyRL-Gym in this process; a second call changes nothing."""
    if ENV_CLASS not in registry:
        skyrl_gym.register(id=ENV_CLASS, entry_point="rl.env:MazeTextEnv")
