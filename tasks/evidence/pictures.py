"""Pictures of a run: the solve-rate curve, and mazes walked before and after. Pure: records in, figures out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rl.maze.grid import Cell, Direction, Maze, generate_maze, moved
from rl.maze.pictures import render
from rl.maze.score import MOVE_LETTERS, EvalReport, Outcome
from tasks.release.statistics import wilson_interval

_CELL_PX = 16


def solve_rate_curve(evaluations: Sequence[EvalReport], ceiling: int, best_step: int, title: str) -> Figure:
    """Mazes solved over training steps, with 95% Wilson intervals, the ceiling, and the step that was kept."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    steps = [report.step for report in evaluations]
    solved = [report.num_solved for report in evaluations]
    num_mazes = evaluations[0].num_mazes
    bounds = [wilson_interval(report.num_solved, report.num_mazes) for report in evaluations]
    axes.fill_between(
        steps,
        [low * num_mazes for low, _ in bounds],
        [high * num_mazes for _, high in bounds],
        alpha=0.2,
        lw=0,
        label="95% Wilson interval",
    )
    axes.plot(steps, solved, marker="o", label="solved")
    kept = next(report for report in evaluations if report.step == best_step)
    axes.plot(
        [best_step], [kept.num_solved], marker="o", ms=13, mfc="none", mec="tab:red", ls="none", label="kept step"
    )
    axes.axhline(ceiling, color="grey", ls="--", lw=1, label=f"ceiling ({ceiling})")
    for step, number in zip(steps, solved, strict=True):
        axes.annotate(str(number), (step, number), textcoords="offset points", xytext=(0, 8), ha="center", fontsize=8)
    axes.set(xlabel="training step", ylabel=f"mazes solved, of {num_mazes}", ylim=(0, num_mazes * 1.08), title=title)
    axes.legend(loc="lower right", fontsize=8)
    return figure


def replay_gallery(base: EvalReport, best: EvalReport, height: int, width: int, num_columns: int = 6) -> Figure:
    """Walks of the base (top) and of the kept step (below) in the same mazes: won, lost, then unchanged ones."""
    chosen = list(_most_telling(base, best))[:num_columns]
    figure = Figure(figsize=(2.2 * num_columns, 4.6), layout="constrained")
    for column, (label, before, after) in enumerate(chosen):
        maze = generate_maze(before.seed, height, width)
        for row, (name, outcome) in enumerate((("base", before), (f"step {best.step}", after))):
            axes = figure.add_subplot(2, num_columns, row * num_columns + column + 1)
            draw_walk(axes, maze, outcome)
            verdict = "solved" if outcome.solved else "not solved"
            axes.set_title(f"{name}: {verdict}, {outcome.num_turns} turns", fontsize=7)
            if row == 0:
                axes.set_xlabel(f"seed {before.seed}: {label}", fontsize=8)
                axes.xaxis.set_label_position("top")
    figure.suptitle(f"{base.num_solved} -> {best.num_solved} of {base.num_mazes} mazes", fontsize=10)
    return figure


def _most_telling(base: EvalReport, best: EvalReport) -> Iterator[tuple[str, Outcome, Outcome]]:
    pairs = list(zip(base.outcomes, best.outcomes, strict=True))
    wanted = (("lost", True, False), ("won", False, True), ("neither", False, False), ("both", True, True))
    groups = [[(label, a, b) for a, b in pairs if (a.solved, b.solved) == (was, now)] for label, was, now in wanted]
    # Up to two of each kind first, then whatever is left, wins before the rest.
    for group in groups:
        yield from group[:2]
    for group in (groups[1], groups[0], groups[2], groups[3]):
        yield from group[2:]


def walked_cells(maze: Maze, outcome: Outcome) -> list[Cell]:
    """The agent's cell before the first and after every turn."""
    cells = [maze.start]
    for letter in outcome.actions:
        here = cells[-1]
        step = moved(here, Direction(MOVE_LETTERS.index(letter))) if letter in MOVE_LETTERS else here
        cells.append(step if maze.is_free(step) else here)
    return cells


def draw_walk(axes: Axes, maze: Maze, outcome: Outcome) -> None:
    """The maze as the agent last saw it, with its path in blue and its bumps into walls as crosses."""
    cells = walked_cells(maze, outcome)
    axes.imshow(render(maze, cells[-1], _CELL_PX))
    centre = [((column + 0.5) * _CELL_PX, (row + 0.5) * _CELL_PX) for row, column in cells]
    axes.plot(*zip(*centre, strict=True), color="tab:blue", lw=1.5)
    axes.plot(*centre[0], marker="s", ms=4, color="tab:green")
    bumps = [
        point
        for letter, here, there, point in zip(outcome.actions, cells, cells[1:], centre, strict=False)
        if letter in MOVE_LETTERS and here == there
    ]
    if bumps:
        axes.plot(*zip(*bumps, strict=True), marker="x", color="tab:orange", ls="none", ms=6)
    axes.set_xticks([])
    axes.set_yticks([])


def save_png(figure: Figure, path: Path) -> Path:
    """Write the figure at 150 dpi."""
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=150)
    return path
