"""Pictures of a run as figures: the solve rate over its steps, and what a step was spent on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rl.maze.score import EvalReport
from tasks.release.statistics import wilson_interval
from tasks.training.figures import AFTER, REWARD, STEP, TIMES


def solve_rate_curve(
    evaluations: Sequence[EvalReport], ceiling: int, best_step: int, title: str, champion: EvalReport | None = None
) -> Figure:
    """Mazes solved over training steps, with 95% Wilson intervals; base, champion and ceiling as lines."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    steps = [report.step for report in evaluations]
    solved = [report.num_solved for report in evaluations]
    num_mazes = evaluations[0].num_mazes
    bounds = [wilson_interval(report.num_solved, report.num_mazes) for report in evaluations]
    low, high = ([bound[side] * num_mazes for bound in bounds] for side in (0, 1))
    axes.fill_between(steps, low, high, alpha=0.2, lw=0, label="95% Wilson interval")
    axes.plot(steps, solved, marker="o", label="solved")
    kept = next(report for report in evaluations if report.step == best_step)
    axes.plot(
        [best_step], [kept.num_solved], marker="o", ms=13, mfc="none", mec="tab:red", ls="none", label="kept step"
    )
    axes.axhline(ceiling, color="grey", ls="--", lw=1, label=f"ceiling ({ceiling})")
    axes.axhline(solved[0], color="tab:brown", ls=":", lw=1.2, label=f"base ({solved[0]})")
    if champion is not None:
        label = f"champion {champion.model_id} ({champion.num_solved} of {champion.num_mazes} judge mazes)"
        axes.axhline(champion.solve_rate * num_mazes, color="tab:purple", ls="-.", lw=1.2, label=label)
    for step, number in zip(steps, solved, strict=True):
        axes.annotate(str(number), (step, number), textcoords="offset points", xytext=(0, 8), ha="center", fontsize=8)
    axes.set(xlabel="training step", ylabel=f"mazes solved, of {num_mazes}", ylim=(0, num_mazes * 1.08), title=title)
    axes.legend(loc="lower right", fontsize=8)
    return figure


def training_curve(numbers: Mapping[int, Mapping[str, float]], title: str) -> Figure:
    """Mean reward of the rollouts over training steps, and what each step's time went into."""
    steps = sorted(step for step, values in numbers.items() if STEP in values)
    figure = Figure(figsize=(8, 6), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    rewarded = [step for step in steps if REWARD in numbers[step]]
    above.plot(rewarded, [numbers[step][REWARD] for step in rewarded], marker="o", ms=4)
    above.set(ylabel="mean reward of the rollouts", ylim=(0, 1.05), title=title)
    _stack(below, steps, [numbers[step] for step in steps])
    below.set(xlabel="training step", ylabel="seconds")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    below.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
    return figure


def _stack(axes: Axes, steps: Sequence[int], numbers: Sequence[Mapping[str, float]]) -> None:
    parts = {label: [values.get(name, 0.0) for values in numbers] for name, label in TIMES.items()}
    known = [sum(seconds[index] for seconds in parts.values()) for index in range(len(steps))]
    parts["rest of the step"] = [max(0.0, values[STEP] - s) for values, s in zip(numbers, known, strict=True)]
    parts |= {label: [values.get(name, 0.0) for values in numbers] for name, label in AFTER.items()}
    top = [0.0] * len(steps)
    for label, seconds in parts.items():
        if any(seconds):
            axes.bar(steps, seconds, bottom=top, label=label)
            top = [a + b for a, b in zip(top, seconds, strict=True)]
    # Bars on bars: matplotlib leaves no margin above where one of them ends.
    axes.set_ylim(0, 1.08 * max(top, default=1.0))


def save_png(figure: Figure, path: Path) -> Path:
    """Write the figure at 150 dpi."""
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=150)
    return path
