"""The curves of several runs in one picture. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tasks.clients.mlflow_evidence import RATE, RATE_HIGH, RATE_LOW, REWARD, STEP_S, RunEvidence


def curves_of(runs: Sequence[RunEvidence]) -> Figure:
    """Solve rate with its interval and the ceiling, reward of the rollouts and seconds a step, a colour a run."""
    figure = Figure(figsize=(9, 9), layout="constrained")
    rate, reward, seconds = figure.subplots(3, sharex=True, height_ratios=(2, 1, 1))
    for number, one in enumerate(runs):
        colour = f"C{number % 10}"
        _draw(rate, one, RATE, colour, one.run.name)
        low, high = (one.curves.get(name, {}) for name in (RATE_LOW, RATE_HIGH))
        steps = sorted(low.keys() & high.keys())
        rate.fill_between(steps, [low[step] for step in steps], [high[step] for step in steps], alpha=0.15, lw=0)
        rate.collections[-1].set_facecolor(colour)
        _draw(reward, one, REWARD, colour, "")
        _draw(seconds, one, STEP_S, colour, "")
    for share in sorted({share for one in runs if (share := _ceiling(one)) is not None}):
        rate.axhline(share, color="grey", ls="--", lw=1, label=f"ceiling {share:.0%}")
    rate.set(ylabel="evaluation mazes solved", ylim=(0, 1.05), title="Solve rate, with 95% Wilson intervals")
    rate.yaxis.set_major_formatter(PercentFormatter(1.0))
    rate.legend(loc="lower right", fontsize=8)
    reward.set(ylabel="mean reward of the rollouts", ylim=(0, 1.05))
    seconds.set(xlabel="training step", ylabel="seconds a step")
    seconds.set_ylim(bottom=0)
    seconds.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _draw(axes: Axes, one: RunEvidence, name: str, colour: str, label: str) -> None:
    curve = sorted(one.curves.get(name, {}).items())
    steps, values = [step for step, _ in curve], [value for _, value in curve]
    axes.plot(steps, values, color=colour, marker="o", ms=4, label=label or None)


def _ceiling(one: RunEvidence) -> float | None:
    eval_set = one.report.get("eval_set")
    return eval_set["ceiling"] / eval_set["num_mazes"] if eval_set else None
