"""``maze_2d``: the project's Gymnasium environment, wire-compatible with VisGym's environment of that name.

Same prompt, tuple actions, directions, corners and reward rule. Actions are text, observations are
RGB pictures, and ``info["env_feedback"]`` says what became of the last action.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rl.maze.grid import Cell, Maze, generate_maze, moved
from rl.maze.pictures import FLOOR, drawing, png_bytes
from rl.maze.prompts import EXECUTED, HIT_WALL, Move, Stop, Unparsable, parse_reply, task_prompt, unparsable_feedback
from rl.maze.visgym import visgym_disc, visgym_maze
from rl.settings import ENV_ID, VISGYM_ENV_ID
from rl.settings import VISGYM_CELL_PX as CELL_PX


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
        self._maze = self._drawn(drawn)
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

    def _drawn(self, seed: int) -> Maze:
        return generate_maze(seed, self.maze_height, self.maze_width)

    def _info(self, feedback: str) -> dict[str, Any]:
        return {
            "env_feedback": feedback,
            "agent": self._agent,
            "target": self.maze.target,
            "is_success": self._agent == self.maze.target,
        }


class VisGymMaze2DEnv(Maze2DEnv):
    """VisGym's ``maze_2d`` where VisGym is not installed: its mazes, and its pictures to the pixel.

    It wipes the agent away in white. A target that the agent has left keeps that white.
    """

    def __init__(self, maze_height: int = 9, maze_width: int = 9, render_mode: str = "rgb_array") -> None:
        super().__init__(maze_height, maze_width, CELL_PX, render_mode)
        self._left_target = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._left_target = False
        return super().reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        was_there = self._agent == self.maze.target
        seen = super().step(action)
        if was_there and self._agent != self.maze.target:
            self._left_target = True
            return self.render(), *seen[1:]
        return seen

    def render(self) -> np.ndarray:  # type: ignore[override]
        image, disc = drawing(self.maze, CELL_PX, visgym_disc).rgb(self._agent), visgym_disc(CELL_PX)
        if self._left_target and self._agent != self.maze.target:
            top, left = (CELL_PX * at for at in self.maze.target)
            image[top : top + CELL_PX, left : left + CELL_PX][disc] = FLOOR
        return image

    def png(self) -> bytes:
        if self._left_target:
            return png_bytes(self.render())
        return drawing(self.maze, CELL_PX, visgym_disc).png(self._agent)

    def _drawn(self, seed: int) -> Maze:
        return visgym_maze(seed, self.maze_height, self.maze_width)


def register_maze_2d() -> None:
    """Make ``maze_2d`` and VisGym's mazes known to ``gymnasium.make``; a second call changes nothing.

    VisGym installs itself as `gymnasium` and brings its environments: those are played where they are. The plain id is
    ours in either case.
    """
    ours = {ENV_ID: "Maze2DEnv", VISGYM_ENV_ID: "VisGymMaze2DEnv"}
    for env_id in ours.keys() - gymnasium.registry.keys():
        gymnasium.register(env_id, entry_point=f"{__name__}:{ours[env_id]}")
