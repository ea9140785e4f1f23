"""Walks as pictures: all mazes of two players on one sheet, and single mazes as moving ones. Pure but for the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from rl.maze.grid import Cell, Maze
from rl.maze.pictures import AGENT, render
from rl.maze.score import Outcome
from rl.maze.walks import ending_of, turns_of
from tasks.evidence.replays import Player, mazes_of

START, WALK, BUMP = (20, 160, 90), (31, 119, 180), (217, 106, 0)
INK, PAPER, GOOD, BAD = (29, 39, 51), (255, 255, 255), (20, 128, 60), (192, 34, 34)
FRAME_MS, LAST_FRAME_MS = 500, 2000


def draw_walk(maze: Maze, outcome: Outcome, turn: int, cell_px: int) -> Image.Image:
    """The maze after so many turns, with the way so far, its start, and crosses where it hit walls."""
    turns = turns_of(maze, outcome)[:turn]
    cells = [maze.start, *(one.after for one in turns)]
    image = Image.fromarray(render(maze, cells[-1], cell_px))
    draw = ImageDraw.Draw(image)

    def middle(cell: Cell) -> tuple[float, float]:
        return (cell[1] + 0.5) * cell_px, (cell[0] + 0.5) * cell_px

    left, top = maze.start[1] * cell_px, maze.start[0] * cell_px
    inset = max(1, cell_px // 6)
    draw.rectangle((left + inset, top + inset, left + cell_px - inset - 1, top + cell_px - inset - 1), None, START, 2)
    if len(cells) > 1:
        draw.line([middle(cell) for cell in cells], WALK, max(2, cell_px // 7), "curve")
    (x, y), radius = middle(cells[-1]), cell_px / 4
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), AGENT)
    for one in turns:
        if one.hit_wall:
            (x, y), arm = middle(one.before), cell_px / 4
            draw.line((x - arm, y - arm, x + arm, y + arm), BUMP, 2)
            draw.line((x - arm, y + arm, x + arm, y - arm), BUMP, 2)
    return image


def contact_sheet(one: Player, other: Player, num_columns: int = 8, cell_px: int = 12) -> Image.Image:
    """Every maze, played by both: ``one`` on the left, ``other`` on the right; the frame says who solved it."""
    mazes = mazes_of(one.report)
    tiles = [
        _tile(number, maze, (a, b), cell_px)
        for number, (maze, a, b) in enumerate(zip(mazes, one.report.outcomes, other.report.outcomes, strict=True), 1)
    ]
    (width, height), head_px = tiles[0].size, 34
    num_rows = -(-len(tiles) // num_columns)
    sheet = Image.new("RGB", (width * num_columns, height * num_rows + head_px), PAPER)
    text = (
        f"left: {one.name}, {one.report.num_solved} of {one.report.num_mazes}; right: {other.name}, "
        f"{other.report.num_solved} of {other.report.num_mazes}. Green frame: solved, red: not solved"
    )
    ImageDraw.Draw(sheet).text((8, 8), text, INK, ImageFont.load_default(16))
    for number, tile in enumerate(tiles):
        sheet.paste(tile, (number % num_columns * width, number // num_columns * height + head_px))
    return sheet


def _tile(number: int, maze: Maze, outcomes: Sequence[Outcome], cell_px: int) -> Image.Image:
    walks = [draw_walk(maze, outcome, outcome.num_turns, cell_px) for outcome in outcomes]
    width, height = walks[0].size
    tile = Image.new("RGB", (2 * width + 26, height + 30), PAPER)
    draw = ImageDraw.Draw(tile)
    draw.text((6, 3), f"{number}: seed {outcomes[0].seed}", INK, ImageFont.load_default(12))
    for place, (walk, outcome) in enumerate(zip(walks, outcomes, strict=True)):
        left = 6 + place * (width + 10)
        draw.rectangle((left - 3, 17, left + width + 2, 22 + height), GOOD if outcome.solved else BAD)
        tile.paste(walk, (left, 20))
    return tile


def moving_walk(players: Sequence[Player], number: int, cell_px: int = 24) -> list[Image.Image]:
    """Maze ``number`` (from 0), played by all of them side by side: one picture a turn."""
    maze = mazes_of(players[0].report)[number]
    num_turns = max(player.report.outcomes[number].num_turns for player in players)
    return [_frame(players, maze, number, turn, cell_px) for turn in range(num_turns + 1)]


def _frame(players: Sequence[Player], maze: Maze, number: int, turn: int, cell_px: int) -> Image.Image:
    height, width = (side * cell_px for side in maze.shape_HW)
    frame = Image.new("RGB", ((width + 10) * len(players) + 10, height + 62), PAPER)
    draw, font = ImageDraw.Draw(frame), ImageFont.load_default(14)
    for place, player in enumerate(players):
        left, outcome = 10 + place * (width + 10), player.report.outcomes[number]
        draw.text((left, 6), player.name, INK, font)
        frame.paste(draw_walk(maze, outcome, min(turn, outcome.num_turns), cell_px), (left, 28))
        is_over = turn >= outcome.num_turns
        ending = f"{ending_of(outcome, player.report.rules.max_turns)}, {outcome.num_turns} turns"
        ink = (GOOD if outcome.solved else BAD) if is_over else INK
        draw.text((left, height + 34), ending if is_over else f"turn {turn}", ink, font)
    return frame


def telling_mazes(one: Player, other: Player, num_each: int = 3) -> dict[str, list[int]]:
    """``won`` and ``lost`` -> the first mazes that only ``other``, or only ``one``, solves; counted from 0."""
    pairs = [(a.solved, b.solved) for a, b in zip(one.report.outcomes, other.report.outcomes, strict=True)]
    kinds = {"won": (False, True), "lost": (True, False)}
    return {
        name: [number for number, pair in enumerate(pairs) if pair == kind][:num_each] for name, kind in kinds.items()
    }


def save_gif(frames: Sequence[Image.Image], path: Path) -> Path:
    """Play it again and again, with a pause at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pauses = [FRAME_MS] * (len(frames) - 1) + [LAST_FRAME_MS]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=pauses, loop=0)
    return path
