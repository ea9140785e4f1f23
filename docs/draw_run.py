"""The README's picture, of one real run: ``python -m docs.draw_run``.

Puts together what docs/results has of it: the solve rates from the table of local-long.md, and three mazes before and
after training out of the run's own picture of replays. Writes docs/results/run.png.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from tasks.release.statistics import wilson_interval

RESULTS = Path(__file__).parent / "results"
TABLE, REPLAYS, PICTURE = RESULTS / "local-long.md", RESULTS / "local-long-replays.png", RESULTS / "run.png"
NUM_MAZES = 64
# Where the replays' picture has its six columns and two rows, as shares of its size; columns of mazes that were won.
COLUMN_LEFT, COLUMN_STEP, COLUMN_WIDTH = 0.0029, 0.16667, 0.1608
ROW_TOP, ROW_HEIGHT = {"before": 0.1217, "after": 0.5885}, 0.3575
WON = (0, 1, 5)


def solved_by_step(markdown: str) -> dict[int, int]:
    """Training step -> mazes solved, from the rows of the table."""
    rows = re.findall(r"^\| \**(\d+)(?: \(base\))?\** \| \**(\d+)\** \| [\d.]+ \|", markdown, re.MULTILINE)
    return {int(step): int(solved) for step, solved in rows}


def maze(picture: Image.Image, row: str, column: int) -> Image.Image:
    """One maze out of the picture of replays."""
    left, top = (COLUMN_LEFT + column * COLUMN_STEP) * picture.width, ROW_TOP[row] * picture.height
    return picture.crop(
        (round(left), round(top), round(left + COLUMN_WIDTH * picture.width), round(top + ROW_HEIGHT * picture.height))
    )


def draw_curve(axes: Axes, solved: dict[int, int]) -> None:
    """Mazes solved over steps, with 95% Wilson intervals."""
    steps, numbers = list(solved), list(solved.values())
    low, high = zip(*(wilson_interval(number, NUM_MAZES) for number in numbers), strict=True)
    axes.fill_between(steps, [p * NUM_MAZES for p in low], [p * NUM_MAZES for p in high], alpha=0.18, lw=0)
    axes.plot(steps, numbers, marker="o", lw=2)
    for step, number in solved.items():
        axes.annotate(str(number), (step, number), textcoords="offset points", xytext=(0, -16), ha="center", fontsize=9)
    axes.axhline(NUM_MAZES, color="grey", ls="--", lw=1)
    axes.set(xlabel="GRPO step", ylim=(0, NUM_MAZES * 1.05))
    axes.set_title(f"Mazes solved, of {NUM_MAZES} held out (95% interval)", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    solved = solved_by_step(TABLE.read_text())
    figure = Figure(figsize=(11, 4), layout="constrained")
    sides: Any = figure.subfigures(1, 2, width_ratios=(1, 1.35))
    left, right = sides
    draw_curve(left.add_subplot(), solved)
    first, best = next(iter(solved)), max(solved, key=lambda step: solved[step])
    with Image.open(REPLAYS) as replays:
        for row, (name, title) in enumerate(
            (("before", f"at step {first}: out of turns"), ("after", f"at step {best}: solved"))
        ):
            for place, column in enumerate(WON):
                axes = right.add_subplot(2, len(WON), row * len(WON) + place + 1)
                axes.imshow(maze(replays, name, column))
                axes.set_axis_off()
                if place == 1:
                    axes.set_title(f"Three of these mazes {title}", fontsize=10)
    FigureCanvasAgg(figure)
    figure.savefig(PICTURE, dpi=110)
    print(PICTURE)


if __name__ == "__main__":
    main()
