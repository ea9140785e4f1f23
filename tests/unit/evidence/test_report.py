"""What a run leaves for its reader: the report and its pictures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from rl.maze.eval_set import EvalSet
from rl.maze.grid import generate_maze
from rl.maze.pictures import render
from rl.maze.score import Outcome
from rl.maze.walks import cells_of
from tasks.evidence.exhibits import make_exhibits
from tasks.evidence.pictures import save_png, solve_rate_curve, training_curve
from tasks.evidence.replays import Player
from tasks.evidence.report import artifact_url, as_markdown, curl_lines, in_one_line, page_url, write_report
from tasks.evidence.report import make_report as make_run_report
from tasks.evidence.settings import ReportSettings
from tasks.evidence.walk_pictures import BAD, GOOD, contact_sheet, draw_walk, moving_walk, save_gif, telling_mazes
from tasks.records import (
    BestStep,
    ChampionChange,
    DiedJob,
    Evaluations,
    JudgeSet,
    PublishedAdapter,
    ServedEndpoint,
    ServedRun,
)
from tasks.release.gate import judge
from tasks.release.settings import GateSettings
from tasks.run import StageBook
from tasks.settings import dotted
from tasks.training.best import choose_best
from tasks.training.figures import REWARD
from tests.recording import RecordingLog, RecordingPage, recording
from tests.unit.evidence.replay_samples import training_step
from tests.unit.samples import RULES, SEEDS, certificate_of, report, trained, walk

NUMBERS = {
    0: {"timing/eval": 30.0},
    1: {"timing/step": 50.0, "timing/generate": 15.0, "timing/train_critic_and_policy": 28.0, REWARD: 0.4},
    2: {"timing/step": 48.0, "timing/generate": 12.0, "timing/eval": 20.0, REWARD: 0.6},
}


def test_a_replayed_walk_ends_where_the_agent_stood() -> None:
    maze = generate_maze(3, 7, 9)
    assert cells_of(maze, walk(3, True))[-1] == maze.target
    bump = Outcome(seed=3, solved=False, actions="?S", unparsable_replies=1)
    assert cells_of(maze, bump) == [maze.start] * 3


def test_curves_are_drawn_and_not_blank(tmp_path: Path) -> None:
    evaluations = [report(0, 20), report(4, 30), report(8, 40)]
    curve = solve_rate_curve(evaluations, 64, 8, "title", champion=report(0, 35))
    labels = curve.axes[0].get_legend_handles_labels()[1]
    assert {"ceiling (64)", "base (20)", "champion m (35 of 64 judge mazes)", "95% Wilson interval"} <= set(labels)
    for figure, name in ((curve, "curve"), (training_curve(NUMBERS, "title"), "training")):
        pixels = np.asarray(Image.open(save_png(figure, tmp_path / "sub" / f"{name}.png")).convert("RGB"))
        assert pixels.shape[0] > 400
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20


def test_the_bars_of_a_step_are_as_high_as_it_was_long() -> None:
    below = training_curve(NUMBERS, "title").axes[1]
    tops = {round(bar.get_x() + bar.get_width() / 2): 0.0 for bars in below.containers for bar in bars}
    for bars in below.containers:
        for bar in bars:
            tops[round(bar.get_x() + bar.get_width() / 2)] += bar.get_height()
    assert tops == {1: 50.0, 2: 68.0}


def test_a_picture_of_a_walk_shows_what_was_seen_beneath_its_marks() -> None:
    outcome = walk(3, True)
    maze = generate_maze(3, 7, 9)
    drawn, seen = np.asarray(draw_walk(maze, outcome, 4, 24)), render(maze, cells_of(maze, outcome)[4], 24)
    walls = np.repeat(np.repeat(maze.wall_HW, 24, 0), 24, 1)
    assert (drawn[walls] == seen[walls]).all()
    row, column = cells_of(maze, outcome)[4]
    assert (drawn[row * 24 + 12, column * 24 + 12] == seen[row * 24 + 12, column * 24 + 12]).all()
    assert (drawn != seen).any()


def test_the_sheet_has_every_maze_and_moving_walks_a_frame_a_turn(tmp_path: Path) -> None:
    one, other = Player("base", report(0, 20)), Player("step 8", report(8, 40))
    sheet = contact_sheet(one, other)
    colours = [colour for _, colour in sheet.getcolors(1 << 16) or []]
    assert {GOOD, BAD} <= set(colours)
    assert telling_mazes(one, other) == {"won": [20, 21, 22], "lost": []}
    assert telling_mazes(other, one, 1) == {"won": [], "lost": [20]}
    frames = moving_walk([one, other], 20)
    saved = Image.open(save_gif(frames, tmp_path / "walk.gif"))
    assert getattr(saved, "n_frames", 1) == len(frames) == other.report.outcomes[20].num_turns + 1


def test_what_can_be_looked_at_goes_to_mlflow_and_is_linked_from_the_report(tmp_path: Path) -> None:
    context, events = recording()
    kept = {"numbers": NUMBERS, "rollouts": (training_step(1, 0.8),)}
    best = choose_best(trained({0: 28, 4: 40}, [4]).model_copy(update=kept))
    settings = ReportSettings(reports_dir=str(tmp_path), profile="local")
    write_report.fn(context, settings, best, served())
    files = [event for event in events if event.startswith("log ")]
    assert files == [
        "log report.json",
        "log evaluations/served.json",
        "log judge/candidate.json",
        "log pictures/solve_rate.png",
        "log pictures/training.png",
        "log pictures/replays.png",
        *(f"log replays/won_{SEEDS[number]}.gif" for number in (28, 29, 30)),
        "log replays/replays.html",
        "log replays/judge.html",
        "log replays/rollouts.html",
    ]
    assert [event.split()[1] for event in events if event.startswith("picture ")] == ["curve", "training", "replays"]
    assert events[-1] == "markdown report"
    assert isinstance(context.page, RecordingPage)
    for name in ("replays", "judge", "rollouts"):
        assert (tmp_path / "r" / f"{name}.html").read_text().startswith("<!doctype html>")
        assert f"/artifacts/replays/{name}.html" in context.page.markdowns["report"]


def test_a_run_that_kept_no_numbers_and_episodes_has_the_other_pictures(tmp_path: Path) -> None:
    best = choose_best(trained({0: 28, 4: 40}, [4]))
    assert list(make_exhibits(tmp_path, "local", best, served()).pictures) == ["curve", "replays"]
    assert not (tmp_path / "rollouts.html").exists()


def test_a_job_that_died_stands_in_the_report_with_its_cause() -> None:
    run = trained({0: 28, 4: 40}, [4])
    died = DiedJob(submission_id="r-train-1", step=3, held_step=2, cause="training: step 3: out of memory")
    best = choose_best(run.model_copy(update={"died": (died,)}))
    document = make_run_report(recording()[0], ReportSettings(reports_dir="", profile="local"), best, served())
    assert document["died"] == [{"submission_id": "r-train-1", "step": 3, "cause": "training: step 3: out of memory"}]
    assert as_markdown(document).endswith("r-train-1 died at step 3: training: step 3: out of memory\n")


def test_the_report_has_the_published_schema() -> None:
    ticks = iter([100.0, 112.345, 112.5])
    book = StageBook(clock=lambda: next(ticks))
    context = replace(recording()[0], stages=book, clock=lambda: next(ticks), started_s=100.0)
    with book.noted("train"):
        pass
    best: BestStep = choose_best(trained({0: 28, 4: 40}, [4]))
    document: dict[str, Any] = make_run_report(context, ReportSettings(reports_dir="", profile="local"), best, served())
    assert json.loads(json.dumps(document)) == {
        "run_name": "r",
        "profile": "local",
        "note": "",
        "eval_set": {"sha256": "e", "num_mazes": 64, "ceiling": 64},
        "rules": RULES.model_dump(mode="json"),
        "evals": [
            {
                "step": step,
                "solved": solved,
                "interval": [low, high],
                "unparsable_replies": 0,
                "mean_turns": row["mean_turns"],
                "behaviour": {
                    "turned_back": row["behaviour"]["turned_back"],
                    "hit_walls": row["behaviour"]["hit_walls"],
                    "unparsable_replies": 0,
                    "solved": solved,
                    "wrong_stops": 64 - solved,
                    "out_of_turns": 0,
                    "cut_off": 0,
                },
            }
            for row, (step, solved, low, high) in zip(
                document["evals"], [(0, 28, 0.3229, 0.5591), (4, 40, 0.5025, 0.7333)], strict=True
            )
        ],
        "base": {"solved": 28},
        "best": {"step": 4, "solved": 40, "export_path": "/exports/4"},
        "steps": 4,
        "died": [],
        "mlflow": {"parent_run_id": "p", "child_run_id": "training-1", "url": "http://mlflow"},
        "adapter": {"name": "r-step-4", "uri": "s3://models/a/r-step-4", "sha256": "a" * 64},
        "proof": {
            "listed": True,
            "num_probes": 8,
            "num_different_from_base": 8,
            "num_equal_replies": 8,
            "max_logprob_difference": 0.001,
            "training_solved": 40,
            "endpoint_solved": 40,
            "agreement_p_value": 1.0,
            "failures": [],
            "holds": True,
        },
        "judge": {
            "name": "judge-r",
            "sha256": "j",
            "num_mazes": 64,
            "ceiling": 64,
            "solved": {"candidate": 40, "base": 28},
            "recalled": ["tiny"],
        },
        "gate": {
            "decision": "promote",
            "reason": document["gate"]["reason"],
            "wins": 12,
            "losses": 0,
            "difference": {"value": 0.1875, "low": 0.0855, "high": 0.2808},
            "p_value": document["gate"]["p_value"],
            "visible_gain": document["gate"]["visible_gain"],
            "champion": "r-step-4",
        },
        "walks": {
            name: {"path_efficiency": 1.0, "solved_by_turns_needed": found["solved_by_turns_needed"]}
            for name, found in document["walks"].items()
        },
        "served": {"url": "http://llm", "base_model_id": "tiny", "adapter_model_id": "tiny:r-step-4", "away_s": 0.0},
        "timings_s": {"train": 12.3},
        "wall_s": 12.5,
    }
    lengths = document["walks"]["served"]["solved_by_turns_needed"]
    assert [sum(side) for side in zip(*lengths.values(), strict=True)] == [40, 64]
    assert "| 4 | 40 | 50% to 73% |" in as_markdown(document)
    text = as_markdown(document)
    assert "40 of 64 mazes through the endpoint (40 in training). Proof holds." in text
    assert "Judge 40 of 64, base 28 (tiny recalled from an earlier attempt): mazes that chose no step." in text
    assert (
        "Gate: promote, 12 judge mazes won and 0 lost against the base, p=0.00049, +18.8 points (95% interval" in text
    )
    assert in_one_line(document) == "judge 40/64, +12 over base, promoted"
    base_line, adapter_line = curl_lines(document).splitlines()
    assert base_line.startswith("curl -s http://llm/v1/chat/completions")
    assert '"model": "tiny:r-step-4"' in adapter_line


def judge_set() -> JudgeSet:
    mazes = EvalSet(env_id="maze_2d", height=7, width=9, mazes=())
    return JudgeSet(name="judge-r", sha256="j", mazes=mazes, ceiling=64)


def served() -> ServedRun:
    adapter = PublishedAdapter(
        name="r-step-4", uri="s3://models/a/r-step-4", sha256="a" * 64, step=4, model_id="tiny:r-step-4"
    )
    return ServedRun(
        adapter=adapter,
        endpoint=ServedEndpoint(url="http://llm", base_model_id="tiny", deployed=True),
        certificate=certificate_of(adapter),
        verdict=judge(GateSettings(), report(4, 40), report(0, 28), None),
        change=ChampionChange(champion="r-step-4", previous=None),
        played=Evaluations(
            judge_set=judge_set(), candidate=report(4, 40), base=report(0, 28), champion=None, recalled=("tiny",)
        ),
        evaluation=report(4, 40),
    )


def test_files_are_linked_where_mlflow_shows_them_and_where_it_gives_them_out() -> None:
    url = "http://m:5000/#/experiments/1/runs/p?workflowType=machine_learning"
    context = replace(recording()[0], run=RecordingLog([], "p", url))
    assert page_url(context, "replays/a.html") == (
        "http://m:5000/#/experiments/1/runs/p/artifacts/replays/a.html?workflowType=machine_learning"
    )
    assert artifact_url(context, "replays/a.html") == "http://m:5000/get-artifact?path=replays/a.html&run_uuid=p"


def test_settings_become_dotted_parameters() -> None:
    assert dotted({"a": {"b": 1, "c": {"d": "x"}}, "e": [1]}) == {"a.b": 1, "a.c.d": "x", "e": [1]}
