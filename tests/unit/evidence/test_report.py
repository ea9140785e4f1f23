"""What a run leaves for its reader: the report and its pictures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from rl.maze.grid import generate_maze
from rl.maze.score import Outcome
from tasks.evidence.pictures import replay_gallery, save_png, solve_rate_curve, walked_cells
from tasks.evidence.report import as_markdown, curl_lines
from tasks.evidence.report import make_report as make_run_report
from tasks.records import (
    BestStep,
    ChampionChange,
    PublishedAdapter,
    ServedEndpoint,
    ServedRun,
)
from tasks.release.gate import judge
from tasks.release.settings import GateSettings
from tasks.run import StageBook
from tasks.settings import dotted
from tasks.training.best import choose_best
from tests.recording import recording
from tests.unit.samples import RULES, certificate_of, report, trained, walk


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
    best: BestStep = choose_best(trained({0: 28, 4: 40}, [4]))
    document: dict[str, Any] = make_run_report(context, "local", best, served())
    assert json.loads(json.dumps(document)) == {
        "run_name": "r",
        "profile": "local",
        "eval_set": {"sha256": "e", "num_mazes": 64, "ceiling": 64},
        "rules": RULES.model_dump(mode="json"),
        "evals": [
            {"step": 0, "solved": 28, "unparsable_replies": 0, "mean_turns": document["evals"][0]["mean_turns"]},
            {"step": 4, "solved": 40, "unparsable_replies": 0, "mean_turns": document["evals"][1]["mean_turns"]},
        ],
        "base": {"solved": 28},
        "best": {"step": 4, "solved": 40, "export_path": "/exports/4"},
        "steps": 4,
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
        "gate": {
            "decision": "promote",
            "reason": document["gate"]["reason"],
            "wins": 12,
            "losses": 0,
            "p_value": document["gate"]["p_value"],
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


def test_settings_become_dotted_parameters() -> None:
    assert dotted({"a": {"b": 1, "c": {"d": "x"}}, "e": [1]}) == {"a.b": 1, "a.c.d": "x", "e": [1]}
