"""A job's output made clean where it is written: real processes, and Ray's own way of reading a log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from rl.events import Evaluated, parse_line
from rl.maze.score import EvalReport, Outcome
from tests.unit.samples import RULES

CLEANED = "from rl.output import clean_output; clean_output(); import os, sys, subprocess, time, signal\n"


def run_job(log: Path, code: str) -> int:
    """The exit status of a process that prints into ``log``, as Ray's job supervisor has it."""
    with log.open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-u", "-c", CLEANED + textwrap.dedent(code)], stdout=file, stderr=subprocess.STDOUT
        )
    return done.returncode


def text_of(log: Path, wanted: str) -> str:
    """Read as Ray reads it (strict UTF-8); the last bytes may come a moment after the process has ended."""
    deadline_s = time.monotonic() + 10
    while wanted not in (text := log.read_text()) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return text


def test_bytes_that_are_no_utf_8_are_written_out_whoever_writes_them(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    code = r"""
        print("before \u2028 ä")
        os.write(1, b"native \xff\n")
        os.write(2, b"\xc3(\xe2\x82\n")
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'child \\xfe\\n')"])
        os.write(1, "ä".encode()[:1]); time.sleep(0.2); os.write(1, "ä".encode()[1:] + b"\n")
        print("after")
        os.write(1, b"cut \xe2\x82")
    """
    assert run_job(log, code) == 0
    assert text_of(log, "cut \\xe2\\x82") == (
        "before \u2028 ä\nnative \\xff\n\\xc3(\\xe2\\x82\nchild \\xfe\nä\nafter\ncut \\xe2\\x82"
    )


@pytest.mark.parametrize(
    ("code", "status", "last"),
    [
        ("print('bye'); sys.exit(3)", 3, "bye"),
        ("print('bye'); os._exit(4)", 4, "bye"),
        ("raise ValueError('the reason')", 1, "ValueError: the reason"),
        ("print('bye'); os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, "bye"),
        ("import faulthandler; faulthandler.enable(); os.abort()", -signal.SIGABRT, "Fatal Python error: Aborted"),
    ],
)
def test_how_a_job_ends_and_what_it_said_last_are_its_own(tmp_path: Path, code: str, status: int, last: str) -> None:
    log = tmp_path / "job.log"
    assert run_job(log, code) == status
    assert last in text_of(log, last)


def test_a_stop_reaches_the_job_and_its_last_words_the_log(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    code = CLEANED + textwrap.dedent(r"""
        def stop(*_):
            os.write(1, b"stopping \xff\n")
            sys.exit(5)
        signal.signal(signal.SIGTERM, stop)
        print("ready")
        time.sleep(60)
    """)
    with log.open("wb") as file:
        job = subprocess.Popen([sys.executable, "-u", "-c", code], stdout=file, start_new_session=True)
    text_of(log, "ready")
    os.killpg(job.pid, signal.SIGTERM)
    assert job.wait(timeout=10) == 5
    assert text_of(log, "stopping \\xff\n").endswith("stopping \\xff\n")


def test_much_output_of_many_writers_arrives_whole_and_no_event_is_torn(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    code = r"""
        import threading
        from rl.events import Evaluated, EventLog
        from rl.maze.score import EvalReport, Outcome
        from tests.unit.samples import RULES
        outcomes = tuple(Outcome(seed=i, solved=True, actions="R" * 40, unparsable_replies=0) for i in range(64))
        event = Evaluated(report=EvalReport(step=1, rules=RULES, model_id="m", outcomes=outcomes))
        noise = threading.Thread(target=lambda: [os.write(2, b"noise \xff") for _ in range(2000)])
        noise.start()
        for _ in range(200):
            EventLog().emit(event)
        noise.join()
        print("\nlast")
    """
    assert run_job(log, code) == 0
    text = text_of(log, "\nlast\n")
    outcomes = tuple(Outcome(seed=i, solved=True, actions="R" * 40, unparsable_replies=0) for i in range(64))
    event = Evaluated(report=EvalReport(step=1, rules=RULES, model_id="m", outcomes=outcomes))
    assert text.count("noise \\xff") == 2000
    heard = [found for line in text.split("\n") if (found := parse_line(line))]
    assert heard == [event] * 200
