"""``maze_2d``: the project's Gymnasium environment, wire-compatible with VisGym's environment of that name.

Same prompt, tuple actions, directions, corners and reward rule. Actions are text, observations are
RGB pictures, and ``info["env_feedback"]`` says what became of the last action.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rl.maze.grid import Cell, Maze, generate_maze, moved
from rl.maze.pictures import drawing
from rl.maze.prompts import EXECUTED, HIT_WALL, Move, Stop, Unparsable, parse_reply, task_prompt, unparsable_feedback

ENV_ID = "maze_2d"


class Maze2DEnv(gymnasium.Env[np.ndarray, str]):
    """One maze per seed; the reward is 1.0 for ``stop`` on the target and 0.0 for everything else."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - gymnasium declares it so

    def __init__(
        self, maze_height: int = 9, maze_width: int = 9, cell_px: int = 25, render_mode: str = "rgb_array"
    ) -> None:
        self.maze_height, self.maze_width, self.cell_px = maze_height, maze_width, cell_px
        self.render_mode = render_mode
        shape = (maze_height * cell_px, maze_width * cell_px, 3)
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gymnasium.spaces.Text(256)
        self._maze: Maze | None = None
        self._agent: Cell = (0, 0)

    @property
    def maze(self) -> Maze:
        if self._maze is None:
            raise RuntimeError("maze_2d has no maze yet: call reset(seed=...) first")
        return self._maze

    def get_prompt(self) -> str:
        return task_prompt(self.maze_height, self.maze_width)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**32)) if seed is None else seed
        self._maze = generate_maze(drawn, self.maze_height, self.maze_width)
        self._agent = self._maze.start
        return self.render(), self._info("")

    def step(self, action: str) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        parsed = parse_reply(action, "strict")
        reward, terminated, feedback = 0.0, False, EXECUTED
        match parsed:
            case Stop():
                terminated = True
                reward = float(self._agent == self.maze.target)
            case Move(direction):
                step = moved(self._agent, direction)
                if self.maze.is_free(step):
                    self._agent = step
                else:
                    feedback = HIT_WALL
            case Unparsable():
                feedback = unparsable_feedback(parsed)
        return self.render(), reward, terminated, False, self._info(feedback)

    def render(self) -> np.ndarray:  # type: ignore[override]
        return drawing(self.maze, self.cell_px).rgb(self._agent)

    def png(self) -> bytes:
        """The picture that ``render`` gives, as a PNG: quicker than encoding its pixels."""
        return drawing(self.maze, self.cell_px).png(self._agent)

    def _info(self, feedback: str) -> dict[str, Any]:
        return {
            "env_feedback": feedback,
            "agent": self._agent,
            "target": self.maze.target,
            "is_success": self._agent == self.maze.target,
        }


def register_maze_2d() -> None:
    """Make ``gymnasium.make("maze_2d")`` known; a second call changes nothing.

    VisGym installs itself as `gymnasium` and brings environments such as ``maze_2d/easy``; the plain
    id is ours in either case.
    """
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(ENV_ID, entry_point="rl.maze.environment:Maze2DEnv")
