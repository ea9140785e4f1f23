"""An evaluation by itself: figures, a row a maze, and a page that plays its mazes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.evidence.evaluation import REPLAYS, keep_evaluation
from tests.recording import RecordingLog, RecordingPage, recording
from tests.unit.evidence.offline_browser import opened
from tests.unit.evidence.replay_samples import player


@pytest.mark.slow_s(10)
def test_its_mazes_are_kept_and_can_be_played_by_how_they_ended(tmp_path: Path) -> None:
    context, events = recording("evaluate-1")
    report = player("base", 0, 0.8).report
    keep_evaluation(context, report)
    assert events == [
        "metrics 0",
        "log evaluation.json",
        "table episodes/evaluation.json",
        f"log {REPLAYS}",
        "markdown report",
    ]
    assert isinstance(context.run, RecordingLog)
    assert isinstance(context.page, RecordingPage)
    assert context.run.figures[0, "eval/solved"] == report.num_solved
    assert len(context.run.tables["episodes/evaluation.json"]) == 64
    assert REPLAYS in context.page.markdowns["report"]
    path = tmp_path / "replays.html"
    path.write_text(context.run.texts[REPLAYS], encoding="utf-8")
    with opened(path) as page:
        assert not page.is_visible(".compare")
        for name, wanted in (("solved", True), ("unsolved", False)):
            page.click(f"[data-filter={name}]")
            assert page.eval_on_selector_all(".maze", "cards => cards.map(card => Number(card.dataset.maze))") == [
                number for number, outcome in enumerate(report.outcomes) if outcome.solved is wanted
            ]
        page.click(".maze")
        page.keyboard.press("End")
        assert page.inner_text("#boards .how").split(",")[0] != "solved"
