"""Maze pictures: grid and agent -> RGB -> PNG, and back to the grid. Pure but for the codec."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np
from PIL import Image

from rl.maze.grid import Cell, Maze

FLOOR = (255, 255, 255)
WALL = (169, 169, 169)
TARGET = (255, 0, 0)
AGENT = (0, 0, 255)


_PALETTE = np.array([FLOOR, WALL, TARGET, AGENT], np.uint8)
"""Four colours: a pixel is two bits in a PNG."""
_BITS = 2
_PIXELS_PER_BYTE = 8 // _BITS
Disc = Callable[[int], np.ndarray]
"""Side of a cell in pixels -> which of its pixels the agent covers."""
_UP = 2
"""PNG's filter that stores a row as its difference from the one above: most rows are like it."""


@cache
def round_disc(cell_px: int) -> np.ndarray:
    """Boolean [cell_px, cell_px]: a quarter cell in radius."""
    offset = np.arange(cell_px) - (cell_px - 1) / 2
    return offset[:, None] ** 2 + offset[None, :] ** 2 <= (cell_px / 4) ** 2


class Drawing:
    """A maze's picture: drawn once, and the agent put in wherever it stands, as pixels or as a PNG.

    PNG: ISO/IEC 15948, colour type 3, bit depth 2; decoded to RGB it is ``rgb`` to the pixel.
    """

    def __init__(self, maze: Maze, cell_px: int, disc: Disc = round_disc) -> None:
        colour_HW = maze.wall_HW.astype(np.uint8)
        colour_HW[maze.target] = 2
        self._cell_px, self._disc = cell_px, disc(cell_px)
        # One row of pixels for each row of cells; then rows are repeated whole.
        line = colour_HW.repeat(cell_px, axis=1)
        height, width = len(line) * cell_px, line.shape[1]
        # A PNG row's last byte is filled up.
        padded = np.zeros((len(line), width + -width % _PIXELS_PER_BYTE), np.uint8)
        padded[:, :width] = line
        self._rgb = _PALETTE[line].repeat(cell_px, axis=0)
        self._colours = padded.repeat(cell_px, axis=0)
        self._rows = _packed(padded).repeat(cell_px, axis=0)
        self._filtered = np.empty((len(self._rows), 1 + self._rows.shape[1]), np.uint8)
        self._filtered[:, 0] = _UP
        self._filtered[:, 1:] = self._rows
        self._filtered[1:, 1:] -= self._rows[:-1]
        header = struct.pack(">IIBBBBB", width, height, _BITS, 3, 0, 0, 0)
        self._head = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"PLTE", _PALETTE.tobytes())

    def rgb(self, agent: Cell) -> np.ndarray:
        """uint8 [H * cell_px, W * cell_px, 3], the agent as a disc."""
        image = self._rgb.copy()
        self._cell(image, agent)[self._disc] = AGENT
        return image

    def png(self, agent: Cell) -> bytes:
        """The same picture as a PNG; only the bytes around the agent are made anew."""
        top, left = agent[0] * self._cell_px, agent[1] * self._cell_px
        bottom, right = top + self._cell_px, left + self._cell_px
        first, last = left // _PIXELS_PER_BYTE, -(-right // _PIXELS_PER_BYTE)
        around = self._colours[top:bottom, first * _PIXELS_PER_BYTE : last * _PIXELS_PER_BYTE].copy()
        start = left - first * _PIXELS_PER_BYTE
        around[:, start : start + self._cell_px][self._disc] = 3
        rows, whole = _packed(around), self._rows[:, first:last]
        filtered = self._filtered.copy()
        changed = filtered[:, 1 + first : 1 + last]
        changed[top] = rows[0] - whole[top - 1] if top else rows[0]
        changed[top + 1 : bottom] = rows[1:] - rows[:-1]
        if bottom < len(whole):
            changed[bottom] = whole[bottom] - rows[-1]
        return self._head + _chunk(b"IDAT", zlib.compress(filtered.data, 1)) + _chunk(b"IEND", b"")

    def _cell(self, image: np.ndarray, cell: Cell) -> np.ndarray:
        top, left = cell[0] * self._cell_px, cell[1] * self._cell_px
        return image[top : top + self._cell_px, left : left + self._cell_px]


@lru_cache(maxsize=64)
def drawing(maze: Maze, cell_px: int, disc: Disc = round_disc) -> Drawing:
    """The maze's drawing, kept while the maze is played."""
    return Drawing(maze, cell_px, disc)


def render(maze: Maze, agent: Cell, cell_px: int) -> np.ndarray:
    """Draw the maze: uint8 [H * cell_px, W * cell_px, 3]."""
    return drawing(maze, cell_px).rgb(agent)


def _packed(colours: np.ndarray) -> np.ndarray:
    """Palette indices [rows, columns] as PNG rows of two-bit pixels, [rows, columns / 4]."""
    quads = colours.reshape(len(colours), -1, _PIXELS_PER_BYTE)
    return quads[..., 0] << 6 | quads[..., 1] << 4 | quads[..., 2] << 2 | quads[..., 3]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))


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
    """Encode any picture as PNG; compression level 1, since these pictures live for one turn."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def image_message(text: str, png: bytes) -> dict[str, object]:
    """One user message of the OpenAI chat format: the text, then the picture as a data URL."""
    url = "data:image/png;base64," + base64.b64encode(png).decode("ascii")
    return {
        "role": "user",
        "content": [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}],
    }
