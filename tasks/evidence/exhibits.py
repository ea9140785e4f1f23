"""What a run can be looked at by: curves, contact sheet, moving walks, the page of replays. Records in, files out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.evidence.pictures import save_png, solve_rate_curve, training_curve
from tasks.evidence.replays import Player, replay_page
from tasks.evidence.walk_pictures import contact_sheet, moving_walk, save_gif, telling_mazes
from tasks.records import BestStep, Evaluations


@dataclass(frozen=True)
class Exhibits:
    """Files for the run's reader."""

    pictures: dict[str, Path]
    """Key on the run's page -> picture."""
    walks: tuple[Path, ...]
    """A few mazes won and lost, moving."""
    page: Path
    """All mazes, to be played in a browser."""


def make_exhibits(folder: Path, profile: str, best: BestStep, played: Evaluations) -> Exhibits:
    """Write them into ``folder``."""
    run, title = best.run, f"{best.run.run_name} ({profile})"
    folder.mkdir(parents=True, exist_ok=True)
    curve = solve_rate_curve(run.evaluations, run.mazes.ceiling, best.best.step, title, played.champion)
    pictures = {"curve": save_png(curve, folder / "solve_rate.png")}
    if run.numbers:
        pictures["training"] = save_png(training_curve(run.numbers, title), folder / "training.png")
    players = players_of(best, played)
    base, served = players[0], players[2]
    pictures["replays"] = folder / "replays.png"
    contact_sheet(base, served).save(pictures["replays"])
    walks = [
        save_gif(moving_walk([base, served], number), folder / f"{kind}_{base.report.outcomes[number].seed}.gif")
        for kind, numbers in telling_mazes(base, served).items()
        for number in numbers
    ]
    page = folder / "replays.html"
    page.write_text(replay_page(run.run_name, about(best, played), players), encoding="utf-8")
    return Exhibits(pictures, tuple(walks), page)


def players_of(best: BestStep, played: Evaluations) -> Sequence[Player]:
    """Base, best step in training, the same as served, and the champion where there is another."""
    step = f"step {best.best.step}"
    players = [
        Player("base", played.base),
        Player(f"{step} in training", best.best),
        Player(f"{step} as served", played.candidate),
    ]
    return [*players, Player("champion before", played.champion)] if played.champion else players


def about(best: BestStep, played: Evaluations) -> str:
    """One line below the page's title."""
    rules = best.best.rules
    return (
        f"{best.best.num_mazes} evaluation mazes of {rules.maze.height}x{rules.maze.width} cells, at most "
        f"{rules.max_turns} turns each. Base and served model ({played.base.model_id}, {played.candidate.model_id}) "
        "were played through the endpoint. A maze is won where the second of the two compared solves it and the first "
        "does not. Click a maze to play it."
    )
