"""Stages by their pure parts: what is waited for, what is chosen, what is drawn. Fakes are lists."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rl.maze.eval_set import load_eval_set
from rl.maze.grid import generate_maze, shortest_path
from rl.maze.score import MOVE_LETTERS, EvalReport, IncompleteEvaluation, Outcome, make_report
from tasks.cluster.settings import ClusterSettings
from tasks.cluster.wait import wait_for_gpus
from tasks.errors import ClusterNotReady, NothingToExport
from tasks.evidence.pictures import replay_gallery, save_png, solve_rate_curve, walked_cells
from tasks.evidence.report import as_markdown, curl_lines
from tasks.evidence.report import make_report as make_run_report
from tasks.evidence.tracking import flat
from tasks.records import (
    BestStep,
    ChampionChange,
    ExportRef,
    PublishedAdapter,
    ServedEndpoint,
    ServedRun,
    TrainedRun,
)
from tasks.release.gate import judge, wilson_interval
from tasks.release.settings import GateSettings
from tasks.run import StageBook
from tasks.training.best import choose_best
from tests.recording import recording
from tests.unit.samples import MAZES, certificate_of

SEEDS = [maze.seed for maze in load_eval_set(Path("rl/eval_sets/maze_2d_7x9.json")).mazes]


def walk(seed: int, solved: bool) -> Outcome:
    letters = "".join(MOVE_LETTERS[move] for move in shortest_path(generate_maze(seed, 7, 9)))
    return Outcome(seed=seed, solved=solved, actions=letters + "S" if solved else "RRULS", unparsable_replies=0)


def report(step: int, num_solved: int) -> EvalReport:
    outcomes = tuple(walk(seed, index < num_solved) for index, seed in enumerate(SEEDS))
    return EvalReport(step=step, eval_set_sha256="e" * 64, model_id="m", outcomes=outcomes)


def run(solved: dict[int, int], exported: list[int]) -> TrainedRun:
    exports = tuple(ExportRef(step=step, path=f"/exports/{step}", sha256={}) for step in exported)
    evaluations = tuple(report(step, number) for step, number in sorted(solved.items()))
    return TrainedRun(
        run_name="r",
        submission_id="r-train-1",
        mazes=MAZES,
        model_path="/models/tiny",
        dtype="float32",
        resumed_from_step=0,
        last_step=max(solved),
        evaluations=evaluations,
        exports=exports,
        checkpoint_steps=(),
    )


@pytest.mark.parametrize(
    ("solved", "exported", "best"),
    [
        ({0: 28, 10: 40, 20: 50, 30: 60, 40: 55}, [20, 40], 40),  # the peak at 30 has no export
        ({0: 28, 10: 50, 20: 50}, [10, 20], 10),  # the earliest of equals
        ({0: 28, 10: 20}, [10, 8], 10),  # worse than the base is still the best exported step
    ],
)
def test_the_best_step_has_both_an_evaluation_and_an_export(
    solved: dict[int, int], exported: list[int], best: int
) -> None:
    chosen = choose_best(run(solved, exported))
    assert (chosen.best.step, chosen.export.step, chosen.base.step) == (best, best, 0)


@pytest.mark.parametrize(("solved", "exported"), [({0: 1, 10: 2}, [8]), ({10: 2}, [10]), ({0: 1}, [])])
def test_a_run_without_such_a_step_says_what_is_missing(solved: dict[int, int], exported: list[int]) -> None:
    with pytest.raises(NothingToExport, match="choose eval_interval and export_interval with a common multiple"):
        choose_best(run(solved, exported))


def test_waiting_for_gpus_looks_again_until_they_are_free() -> None:
    looks = iter([0.0, 1.0, 2.0])
    slept: list[float] = []
    said: list[str] = []
    settings = ClusterSettings(jobs_address="http://ray", num_gpus=2, timeout_s=60, poll_s=5)
    found = wait_for_gpus(
        settings,
        look=lambda _: {"gpus_free": next(looks), "gpus_total": 2.0, "ray_version": "2.57.0"},
        say=said.append,
        sleep=slept.append,
        clock=lambda: 0.0,
    )
    assert found["gpus_total"] == 2
    assert slept == [5, 5]
    assert said[0] == "waiting for the cluster: 0 of 2 GPUs are free, 2 are wanted"


def test_waiting_for_gpus_ends_with_what_is_and_what_was_wanted() -> None:
    times = iter([0.0, 30.0, 61.0])
    settings = ClusterSettings(jobs_address="http://ray", num_gpus=6, timeout_s=60, poll_s=5)
    with pytest.raises(
        ClusterNotReady, match="after 60 s 4 of 6 GPUs are free, 6 are wanted at http://ray; end the job"
    ):
        wait_for_gpus(
            settings,
            look=lambda _: {"gpus_free": 4.0, "gpus_total": 6.0, "ray_version": ""},
            say=lambda _: None,
            sleep=lambda _: None,
            clock=lambda: next(times),
        )


def test_an_evaluation_that_missed_or_doubled_a_maze_is_refused() -> None:
    played = [walk(seed, True) for seed in SEEDS]
    assert make_report(3, "e", "m", SEEDS, played[::-1]).outcomes == tuple(played)
    for wrong in (played[:-1], [*played[:-1], played[0]]):
        with pytest.raises(IncompleteEvaluation, match=f"missing seeds .{SEEDS[-1]}"):
            make_report(3, "e", "m", SEEDS, wrong)


def test_wilson_intervals_agree_with_published_values() -> None:
    # 28 of 64 and 62 of 64, to a tenth of a point (Wilson 1927, without continuity correction).
    assert wilson_interval(28, 64) == pytest.approx((0.323, 0.559), abs=1e-3)
    assert wilson_interval(62, 64) == pytest.approx((0.893, 0.991), abs=1e-3)


def test_a_replayed_walk_ends_where_the_agent_stood() -> None:
    maze = generate_maze(3, 7, 9)
    assert walked_cells(maze, walk(3, True))[-1] == maze.target
    bump = Outcome(seed=3, solved=False, actions="?S", unparsable_replies=1)
    assert walked_cells(maze, bump) == [maze.start] * 3


def test_pictures_are_drawn_and_not_blank(tmp_path: Path) -> None:
    curve = solve_rate_curve([report(0, 20), report(4, 30), report(8, 40)], 64, 8, "title")
    gallery = replay_gallery(report(0, 20), report(8, 40), 7, 9)
    for figure, name in ((curve, "curve"), (gallery, "gallery")):
        pixels = np.asarray(Image.open(save_png(figure, tmp_path / "sub" / f"{name}.png")).convert("RGB"))
        assert pixels.shape[0] > 400
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20


def test_the_report_has_the_published_schema() -> None:
    ticks = iter([100.0, 112.345, 112.5])
    book = StageBook(clock=lambda: next(ticks))
    context = replace(recording()[0], stages=book, clock=lambda: next(ticks), started_s=100.0)
    with book.noted("train"):
        pass
    best: BestStep = choose_best(run({0: 28, 4: 40}, [4]))
    document: dict[str, Any] = make_run_report(context, "local", best, served())
    assert json.loads(json.dumps(document)) == {
        "run_name": "r",
        "profile": "local",
        "eval_set": {"sha256": "e", "num_mazes": 64, "ceiling": 64},
        "evals": [
            {"step": 0, "solved": 28, "unparsable_replies": 0, "mean_turns": document["evals"][0]["mean_turns"]},
            {"step": 4, "solved": 40, "unparsable_replies": 0, "mean_turns": document["evals"][1]["mean_turns"]},
        ],
        "base": {"solved": 28},
        "best": {"step": 4, "solved": 40, "export_path": "/exports/4"},
        "steps": 4,
        "mlflow": {"parent_run_id": "p", "child_run_id": "c", "url": "http://mlflow"},
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
        "gate": {
            "decision": "promote",
            "reason": document["gate"]["reason"],
            "wins": 12,
            "losses": 0,
            "champion": "r-step-4",
        },
        "served": {"url": "http://llm", "base_model_id": "tiny", "adapter_model_id": "tiny:r-step-4"},
        "timings_s": {"train": 12.3},
        "wall_s": 12.5,
    }
    assert "| 4 | 40 |" in as_markdown(document)
    assert "Proof holds. Gate: promote, 12 mazes won and 0 lost against the base" in as_markdown(document)
    base_line, adapter_line = curl_lines(document).splitlines()
    assert base_line.startswith("curl -s http://llm/v1/chat/completions")
    assert '"model": "tiny:r-step-4"' in adapter_line


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
    )


def test_settings_become_flat_parameters() -> None:
    assert flat({"a": {"b": 1, "c": {"d": "x"}}, "e": [1]}) == {"a.b": 1, "a.c.d": "x", "e": [1]}
