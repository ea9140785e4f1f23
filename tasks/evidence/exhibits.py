"""What a run can be looked at by: curves, contact sheet, moving walks, pages of replays. Records in, files out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rl.maze.score import EvalReport
from tasks.evidence.pictures import save_png, solve_rate_curve, training_curve
from tasks.evidence.replays import Player, replay_page
from tasks.evidence.rollout_replays import rollout_page
from tasks.evidence.walk_pictures import contact_sheet, moving_walk, save_gif, telling_mazes
from tasks.records import BestStep, Evaluations, ServedRun

EVALUATIONS, JUDGED, TRAINED = "every evaluation maze", "every judge maze", "episodes of training"
HOW_TO = "A maze is won where the second of the two compared solves it and the first does not. Click a maze to play it."


@dataclass(frozen=True)
class Exhibits:
    """Files for the run's reader."""

    pictures: dict[str, Path]
    """Key on the run's page -> picture."""
    walks: tuple[Path, ...]
    """A few mazes won and lost, moving."""
    pages: dict[str, Path]
    """What can be played in a browser -> page."""


def make_exhibits(folder: Path, profile: str, best: BestStep, outcome: ServedRun) -> Exhibits:
    """Write them into ``folder``."""
    run, title = best.run, f"{best.run.run_name} ({profile})"
    folder.mkdir(parents=True, exist_ok=True)
    curve = solve_rate_curve(run.evaluations, run.mazes.ceiling, best.best.step, title, outcome.played.champion)
    pictures = {"curve": save_png(curve, folder / "solve_rate.png")}
    if run.numbers:
        pictures["training"] = save_png(training_curve(run.numbers, title), folder / "training.png")
    players = players_of(best, outcome)
    base, served = players[0], players[2]
    pictures["replays"] = folder / "replays.png"
    contact_sheet(base, served).save(pictures["replays"])
    walks = [
        save_gif(moving_walk([base, served], number), folder / f"{kind}_{base.report.outcomes[number].seed}.gif")
        for kind, numbers in telling_mazes(base, served).items()
        for number in numbers
    ]
    return Exhibits(pictures, tuple(walks), make_pages(folder, best, outcome))


def make_pages(folder: Path, best: BestStep, outcome: ServedRun) -> dict[str, Path]:
    """What can be played: evaluation mazes, judge mazes, and episodes of training where the run kept some."""
    run, judges = best.run, judge_players(best.best.step, outcome.played)
    pages = {
        EVALUATIONS: (
            folder / "replays.html",
            replay_page(run.run_name, about(outcome.evaluation), players_of(best, outcome)),
        ),
        JUDGED: (folder / "judge.html", replay_page(run.run_name, about_judge(outcome.played), judges)),
    }
    if run.rollouts:
        pages[TRAINED] = (folder / "rollouts.html", rollout_page(run.run_name, best.base.rules, run.rollouts))
    for path, page in pages.values():
        path.write_text(page, encoding="utf-8")
    return {name: path for name, (path, _) in pages.items()}


def players_of(best: BestStep, outcome: ServedRun) -> Sequence[Player]:
    """Of the evaluation mazes: base and best step in training, and that step as served."""
    step = f"step {best.best.step}"
    return [
        Player("base", best.base),
        Player(f"{step} in training", best.best),
        Player(f"{step} as served", outcome.evaluation),
    ]


def judge_players(step: int, played: Evaluations) -> Sequence[Player]:
    """Of the judge mazes: base, the candidate, and the champion where there is another."""
    players = [Player("base", played.base), Player(f"step {step} as served", played.candidate)]
    return [*players, Player("champion before", played.champion)] if played.champion else players


def about(served: EvalReport) -> str:
    """One line below the page's title."""
    return (
        f"{_sized(served, 'evaluation mazes')} The base was played by the training engine, the served model "
        f"({served.model_id}) through the endpoint. {HOW_TO}"
    )


def about_judge(played: Evaluations) -> str:
    """The same for the judge set."""
    return (
        f"{_sized(played.candidate, 'judge mazes')} They chose no step, and they decided. All were played through the "
        f"endpoint ({played.base.model_id}, {played.candidate.model_id}). {HOW_TO}"
    )


def about_alone(report: EvalReport) -> str:
    """The same for a player of whom nothing but this is known."""
    played = f"{report.model_id} played them through its endpoint."
    return f"{_sized(report, 'evaluation mazes')} {played} Click a maze to play it."


def _sized(report: EvalReport, mazes: str) -> str:
    size = report.rules.maze
    return (
        f"{report.num_mazes} {mazes} of {size.height}x{size.width} cells, at most {report.rules.max_turns} turns each."
    )
