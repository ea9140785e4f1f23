"""Maze pictures: grid and agent -> RGB -> PNG, and back to the grid. Pure but for the codec."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from rl.maze import Cell, Maze

FLOOR = (255, 255, 255)
WALL = (169, 169, 169)
TARGET = (255, 0, 0)
AGENT = (0, 0, 255)


def render(maze: Maze, agent: Cell, cell_px: int) -> np.ndarray:
    """Draw the maze: uint8 [H * cell_px, W * cell_px, 3], agent as a disc a quarter cell in radius."""
    wall_HW = maze.wall_HW
    colour_HW = np.where(wall_HW[..., None], WALL, FLOOR).astype(np.uint8)
    colour_HW[maze.target] = TARGET
    image = colour_HW.repeat(cell_px, axis=0).repeat(cell_px, axis=1)
    top, left = agent[0] * cell_px, agent[1] * cell_px
    image[top : top + cell_px, left : left + cell_px][_disc(cell_px)] = AGENT
    return image


def _disc(cell_px: int) -> np.ndarray:
    offset = np.arange(cell_px) - (cell_px - 1) / 2
    return offset[:, None] ** 2 + offset[None, :] ** 2 <= (cell_px / 4) ** 2


def read_grid(image: np.ndarray, cell_px: int) -> tuple[np.ndarray, Cell, Cell]:
    """Recover (wall_HW, agent, target) from a rendered picture.

    The corner pixel of a cell is never covered by the agent's disc, its centre always is.
    """
    corner_HW = image[::cell_px, ::cell_px]
    centre_HW = image[cell_px // 2 :: cell_px, cell_px // 2 :: cell_px]
    wall_HW = (corner_HW == WALL).all(-1)
    (target,) = np.argwhere((corner_HW == TARGET).all(-1))
    (agent,) = np.argwhere((centre_HW == AGENT).all(-1))
    return wall_HW, (int(agent[0]), int(agent[1])), (int(target[0]), int(target[1]))


def png_bytes(image: np.ndarray) -> bytes:
    """Encode as PNG; compression level 1, since these pictures live for one turn."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def image_message(text: str, image: np.ndarray) -> dict[str, object]:
    """One user message of the OpenAI chat format: the text, then the picture as a data URL."""
    url = "data:image/png;base64," + base64.b64encode(png_bytes(image)).decode("ascii")
    return {
        "role": "user",
        "content": [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}],
    }
