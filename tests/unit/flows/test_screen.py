"""The terminal of a run, as text: the news of a recorded run in, lines out. No run, no terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from flows.cli.interrupt import leaving, stopping
from flows.cli.run import harmless_in
from flows.cli.screen import Screen
from flows.cli.words import HARMLESS_ON_CPU, Course, Troubles, duration, stage_line
from tasks.watch import (
    Began,
    Ended,
    Evaluation,
    Following,
    JobSaid,
    Moved,
    News,
    Numbers,
    Opened,
    Said,
    Table,
    Warned,
    teller,
    watched_by,
)

WIDTH = 100


def step(number: int, solve_rate: float) -> list[News]:
    values = {"rollouts/solve_rate": solve_rate, "reward/avg_raw_reward": 0.41, "timing/step": 31.0}
    return [Numbers(number, values), Moved(number, 4, f"mean reward {solve_rate:.3f}")]


RUN: list[News] = [
    Opened("r", "id-1", "http://mlflow/#/runs/7"),
    Began("prepare_data"),
    Ended("prepare_data", "", "completed", "1024 mazes to train on", 0.44),
    Began("run_training"),
    Following("r-train-1", "/runs/r/r-train-1.log"),
    JobSaid("(pid=12) WARNING 12-02 19:30:10 [importing.py:83] Triton is installed, but not importable."),
    JobSaid("(pid=99) WARNING 12-02 19:30:31 [importing.py:83] Triton is installed, but not importable."),
    JobSaid("trainer: {max_steps: 4, warning_level: 3}"),
    Evaluation(0, 33, 64),
    *step(1, 0.5),
    *step(2, 0.625),
    Evaluation(2, 41, 64),
    Ended("run_training", "", "completed", "2 steps", 185.2),
    Began("evaluate_endpoint", "evaluate-tiny:r-step-2"),
    Moved(16, 64, "tiny:r-step-2", "mazes"),
    Ended("evaluate_endpoint", "evaluate-tiny:r-step-2", "completed", "41 of 64 mazes solved", 34.0),
]
PLAIN = """\
begins  run r
follow  Prefect http://prefect/runs/flow-run/id-1
follow  MLflow  http://mlflow/#/runs/7
ok      prepare data               1024 mazes to train on, 0.4 s
!       warning in the job: Triton is installed, but not importable.
eval    step 0 solves 33 of 64 mazes
step    step 1 of 4: 50% of rollouts solved, reward 0.41, 31 s a step, 1 min 33 s left
step    step 2 of 4: 62% of rollouts solved, reward 0.41, 31 s a step, 1 min 2 s left
eval    step 2 solves 41 of 64 mazes
ok      run training               2 steps, 3 min 5 s
ok      evaluate endpoint          tiny:r-step-2: 41 of 64 mazes solved, 34 s
"""


def told(news: list[News], is_live: bool = False, **console: Any) -> tuple[Screen, str]:
    written = io.StringIO()
    screen = Screen(
        Console(file=written, width=WIDTH, **console),
        {"PREFECT_API_URL": "http://prefect/api"},
        is_live=is_live,
        late_s=600,
    )
    with watched_by(screen), screen.shown():
        tell = teller()
        for one in news:
            tell(one)
    return screen, written.getvalue()


def test_without_a_terminal_a_run_is_plain_lines_one_a_stage_and_one_a_step() -> None:
    screen, text = told(RUN)
    assert [line.rstrip() for line in text.splitlines()] == PLAIN.splitlines()
    assert not [character for character in text if not character.isprintable() and character != "\n"]
    assert (screen.run_name, screen.log_path) == ("r", "/runs/r/r-train-1.log")


def test_a_long_line_stays_one_line_whatever_the_width() -> None:
    _, text = told([Began("a"), Ended("a", "", "completed", "x" * 300, 1.0)])
    assert text.count("\n") == 1


def test_on_a_terminal_steps_move_in_the_last_line_and_are_no_lines_of_their_own() -> None:
    _, text = told(RUN, is_live=True, force_terminal=True, color_system=None)
    lasting = [line for line in text.splitlines() if "step 1 of 4" in line]
    assert "evaluate endpoint          tiny:r-step-2: 41 of 64" in text
    assert "\x1b[" in text, "a live line is drawn anew"
    assert len(lasting) <= 3, "only as the moving line"


def test_the_moving_line_says_what_is_under_way_and_how_far() -> None:
    written = io.StringIO()
    console = Console(file=written, width=120)
    screen = Screen(console, {}, is_live=True, clock=lambda: 10.0)
    screen(Began("build_images"))
    screen(Said("#12 [train 3/9] RUN uv pip sync"))
    console.print(screen._moving())
    screen(Began("run_training"))
    for news in step(1, 0.5):
        screen(news)
    console.print(screen._moving())
    screen(Began("evaluate_endpoint", "evaluate-m"))
    screen(Moved(16, 64, "m", "mazes"))
    console.print(screen._moving())
    building, training, playing = written.getvalue().splitlines()
    assert "build images" in building
    assert "#12 [train 3/9] RUN uv pip sync" in building
    assert "step 1 of 4, 1 min 33 s left, 50% of rollouts solved, 31 s a step for 0.0 s" in training
    assert "evaluate endpoint" in playing
    assert "16 of 64 mazes, m" in playing


def test_a_stage_that_takes_long_says_that_it_has_begun_and_a_wait_says_what_it_waits_for() -> None:
    now = iter([0.0, 0.0, 0.0, 30.0, 61.0, 61.0, 62.0])
    written = io.StringIO()
    screen = Screen(Console(file=written, width=WIDTH), {}, is_live=False, clock=lambda: next(now), late_s=600)
    screen(Began("ensure_cluster"))
    assert screen._now is not None
    screen._late(screen._now)
    for seen in range(2):
        screen(Said(f"waiting for the cluster: {seen} of 2 GPUs are free"))
    assert written.getvalue().splitlines() == [
        "...     ensure cluster",
        "...     waiting for the cluster: 1 of 2 GPUs are free",
    ]


def test_a_screen_that_breaks_ends_nothing_and_hears_nothing_more() -> None:
    heard: list[News] = []

    def broken(news: News) -> None:
        heard.append(news)
        raise BrokenPipeError("the reader is gone")

    others: list[News] = []
    with watched_by(broken), watched_by(others.append):
        for news in RUN:
            teller()(news)
    assert (len(heard), len(others)) == (1, len(RUN))


def test_the_first_stage_that_failed_is_kept_and_so_is_what_clean_up_found() -> None:
    rows = [{"part": "jobs", "name": "r-train-1"}]
    screen, text = told(
        [
            Began("run_training"),
            Warned("proof: other weights are served"),
            Warned("proof: other weights are served"),
            Ended("run_training", "", "failed", "", 3.0),
            Began("clean_up"),
            Table("left", rows),
            Ended("clean_up", "", "failed", "1 thing is left", 1.0),
        ]
    )
    assert screen.failed_stage == "run training"
    assert screen.tables["left"] == rows
    assert text.count("other weights are served") == 1
    assert "failed  run training               3.0 s" in text


def test_ctrl_c_names_what_it_stops_and_the_second_one_what_may_be_left() -> None:
    screen, _ = told([Opened("r", "", ""), Began("run_training"), Following("r-train-1", "")])
    assert stopping(screen).startswith("stopping run training and its Ray job r-train-1, then cleaning up")
    screen(Began("clean_up"))
    assert leaving(screen) == (
        "not waiting: Ray job r-train-1 may still run; `maze-retrain cleanup r` shows what is left"
    )


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("ERROR training: step 3: CUDA out of memory", "error in the job: training: step 3: CUDA out of memory"),
        ("2026-12-02 19:30:19,114 - WARNING - the disk fills", "warning in the job: the disk fills"),
        ("ValueError: no such file", "error in the job: ValueError: no such file"),
        ("(pid=3) torch.OutOfMemoryError: tried", "error in the job: torch.OutOfMemoryError: tried"),
        ("2026-12-02 19:30:19,114 - WARNING -", ""),
        ("policy.warning: false", ""),
        ("loss 0.1 errors: 0", ""),
    ],
)
def test_warnings_and_errors_of_a_job_are_told_from_the_rest(line: str, shown: str) -> None:
    heard = Troubles().heard(line)
    assert heard.startswith(shown) if shown else not heard


def test_warnings_that_mean_nothing_without_a_gpu_are_left_out_there_and_shown_on_one() -> None:
    lines = [
        "(pid=7) WARNING 12-02 19:30:10 [importing.py:83] Triton is installed, but `triton.backends` could not be "
        "imported. Disabling Triton.",
        "(pid=7) WARNING 12-02 19:30:11 [_x.py:9] Failed to import the DeepSelect extension (vllm._deepselect_C): No "
        "module named 'vllm._deepselect_C'",
    ]
    on = {device: {"platform": {"train": {"engine": {"device": device}}}} for device in ("cpu", "cuda")}
    assert [Troubles(harmless=harmless_in(on["cpu"])).heard(line) for line in lines] == ["", ""]
    assert all(Troubles(harmless=harmless_in(on["cuda"])).heard(line) for line in lines)
    assert all(Troubles(harmless=harmless_in({"platform": {"url": "http://s"}})).heard(line) for line in lines)
    assert Troubles(harmless=HARMLESS_ON_CPU).heard("WARNING Triton is broken: no kernels")


def test_a_stage_without_news_that_took_no_time_has_no_line_but_one_that_failed_has() -> None:
    _, text = told([Ended("a", "", "completed", "", 0.2), Ended("b", "", "completed", "", 1.2)])
    assert text == "ok      b                          1.2 s\n"
    _, text = told([Ended("a", "", "failed", "", 0.2)])
    assert text.startswith("failed  a")


def test_a_job_that_warns_without_end_fills_no_screen() -> None:
    troubles = Troubles(most=3)
    shown = [text for word in "abcdefgh" if (text := troubles.heard(f"WARNING {word * 5} happened"))]
    assert len(shown) == 4
    assert shown[-1] == "more warnings follow; the job's log has them all"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (12.4, "12 s"), (59.7, "1 min 0 s"), (185, "3 min 5 s"), (7440, "2 h 4 min")],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_stage_without_words_has_its_time_and_a_course_without_numbers_its_text() -> None:
    assert stage_line(Ended("clean_up", "", "completed", "", 2.0)).split() == ["clean", "up", "2.0", "s"]
    course = Course()
    assert course.line() == ""
    course.hear(Moved(0, 4, "base evaluated"))
    assert course.line() == "step 0 of 4: base evaluated"
    assert course.left_s is None
