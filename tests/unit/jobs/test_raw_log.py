"""What a job prints, on disk and in MLflow; and that neither ends a run."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.evidence.watched_page import WatchedPage
from tasks.jobs.news import JobNews
from tasks.jobs.raw_log import MAX_PLAIN_BYTES, kept_log, small
from tasks.jobs.story import JobStory
from tasks.watch import Evaluation, JobSaid, Moved, News, Numbers, Said, Table, Warned
from tests.recording import RecordingPage, recording


def test_a_job_s_lines_are_a_file_of_the_run_and_an_artifact_when_it_ends(tmp_path: Path) -> None:
    context, events = recording()
    context = replace(context, logs_dir=tmp_path / "runs" / "r")
    with kept_log(context, "r-train-1") as log:
        story, news = JobStory(), JobNews(context, None, log.line, log.event)
        for line in (
            "loading",
            '@event {"kind":"progress","done":1,"total":2,"text":"t"}',
            '@event {"kind":"wrote","name":"packages.txt","text":"ray==1"}',
            '@event {"kind":"progress","done":1,"total":2,"text":"t"}',
            "\x1b[31mWARNING\x1b[0m hot",
        ):
            story.hear(line, news)
        assert events == ["progress 1/2", "log job/packages.txt", "progress 1/2"]
    assert (tmp_path / "runs" / "r" / "r-train-1.log").read_text() == "loading\nWARNING hot\n"
    kept = (tmp_path / "runs" / "r" / "r-train-1.events.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in kept] == ["progress", "wrote"]
    assert events[-2:] == ["log logs/r-train-1.log", "log logs/r-train-1.events.jsonl"]


def test_a_large_file_goes_compressed_and_whole(tmp_path: Path) -> None:
    (tmp_path / "j.log").write_text("line\n" * 300_000)
    packed = small(tmp_path / "j.log")
    assert (packed.name, packed.stat().st_size < MAX_PLAIN_BYTES) == ("j.log.gz", True)
    assert gzip.decompress(packed.read_bytes()) == (tmp_path / "j.log").read_bytes()


def test_a_log_that_is_heard_again_from_its_start_is_written_anew_and_one_that_fails_is_kept_too(
    tmp_path: Path,
) -> None:
    context, events = recording()
    context = replace(context, logs_dir=tmp_path)

    def follow(text: str) -> None:
        with kept_log(context, "j") as log:
            log.line(text)
            raise RuntimeError("the job died")

    for text in ("first", "second"):
        with pytest.raises(RuntimeError, match="died"):
            follow(text)
    assert (tmp_path / "j.log").read_text() == "second\n"
    assert events == ["log logs/j.log"] * 2


def test_a_disk_that_takes_no_log_is_told_once_and_ends_nothing(tmp_path: Path) -> None:
    context, events = recording()
    (tmp_path / "file").write_text("")
    context = replace(context, logs_dir=tmp_path / "file")
    with kept_log(context, "j") as log:
        for _ in range(3):
            log.line("x")
    assert isinstance(context.page, RecordingPage)
    assert len(context.page.said) == 1
    assert "not kept any more" in context.page.said[0]
    assert not events


def test_a_run_that_keeps_no_logs_writes_none(tmp_path: Path) -> None:
    context, events = recording()
    with kept_log(context, "j") as log:
        log.line("x")
    assert (log.path, events) == (None, [])


def test_what_a_followed_job_tells_reaches_the_watcher_as_what_it_is() -> None:
    heard: list[News] = []
    context, _ = recording()
    page = WatchedPage(context.page, heard.append)
    news = JobNews(replace(context, page=page, tell=heard.append))
    news.line("a line")
    news.metrics(1, {"reward": 1.0})
    news.progress(1, 4, "mean reward 1")
    page.warn("look")
    page.table("left", [], "What is left")
    assert heard[:3] == [JobSaid("a line"), Numbers(1, {"reward": 1.0}), Moved(1, 4, "mean reward 1")]
    assert heard[3:] == [Warned("look"), Table("left", [])]
    assert not any(isinstance(one, Said | Evaluation) for one in heard)
