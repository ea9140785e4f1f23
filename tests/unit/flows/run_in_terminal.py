"""`maze-retrain run` of a small flow that does nothing: the command, its screen and its signals are the real ones.

``python -m tests.unit.flows.run_in_terminal ends|waits|clings FOLDER``: what the flow does after its second step.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import flows.cli.run
from flows.cli.main import app
from flows.cli.services import TELL_NOBODY
from tasks.run import StageBook
from tasks.watch import Evaluation, Following, JobSaid, Moved, Numbers, Opened, teller

TRITON = (
    "(pid=7) WARNING 12-02 19:30:10 [importing.py:83] Triton is installed, but `triton.backends` could not be imported."
)
LONG = "tiny-qwen3-vl:local-20261202-231039-00189306-step-2"
PAUSE_S = 0.4
"""Longer than the screen takes to draw the last line anew."""


def story(ending: str, notes: Path) -> str:
    tell = teller()
    book = StageBook(tell=tell)
    tell(Opened("r", "0000", "http://127.0.0.1:5500/#/experiments/1/runs/1"))
    with book.noted("order_training"):
        pass
    try:
        with book.noted("run_training"):
            tell(Following("r-train-1", "/runs/r/r-train-1.log"))
            tell(JobSaid(TRITON))
            tell(JobSaid("(pid=8) WARNING 12-02 19:31:10 [x.py:1] " + "the disk is nearly full; " * 9))
            tell(Evaluation(0, 33, 64))
            for step in range(3):
                if step:
                    values = {"rollouts/solve_rate": 0.5, "reward/avg_raw_reward": 0.41, "timing/step": 71.0}
                    tell(Numbers(step, values))
                tell(Moved(step, 16, "base evaluated"))
                time.sleep(PAUSE_S)
            if ending != "ends":
                time.sleep(30)
        with book.noted("evaluate_endpoint", about=f"evaluate-{LONG}") as noted:
            tell(Moved(16, 64, LONG, "mazes"))
            time.sleep(PAUSE_S)
            noted.found = "33 of 64 mazes solved"
    finally:
        with book.noted("clean_up") as noted:
            if ending == "clings":
                time.sleep(30)
            time.sleep(PAUSE_S)
            noted.found = "nothing is left"
            (notes / "cleaned").touch()
    return "done"


def main(ending: str, notes: str) -> None:
    os.environ.update(TELL_NOBODY)
    from prefect.utilities.engine import capture_sigterm

    def flow(platform: Any) -> str:
        with capture_sigterm():
            return story(ending, Path(notes))

    parameters = {"platform": {"train": {"engine": {"device": "cpu"}}}}
    flows.cli.run.prepared = lambda name, arguments: (flow, parameters)
    app(["run"])


if __name__ == "__main__":
    main(*sys.argv[1:])
