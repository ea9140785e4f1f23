"""A training whose driver, policy worker and engine are killed, one after another: real Ray, SkyRL and vLLM, one flow.

The settings are tiny; the flow is the one that people run. Nobody helps it between the three.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from rl.events import EventLog, Metrics, Resumed
from rl.maze.eval_set import build_eval_set, write_eval_set
from tasks.local.services import Layout, LocalServices

pytestmark = [pytest.mark.slow_s(1200), pytest.mark.chaos_only]

ROOT = Path(__file__).resolve().parents[3]
RUN, NUM_STEPS, INTERVAL = "killed", 4, 2
LOSS = "policy/final_loss"


@dataclass(frozen=True)
class Killing:
    """What is killed, and when."""

    what: str
    is_it: Callable[[str], bool]
    """By a process's command line."""
    attempt: int
    after_step: int
    """Whose numbers are told, and which no checkpoint holds: it is trained again."""


KILLINGS = (
    Killing("driver", lambda line: "rl.grpo.job" in line and f'"run_name":"{RUN}"' in line, 1, 3),
    Killing("policy worker", lambda line: line.startswith("ray::") and "Policy" in line, 2, 3),
    Killing("engine", lambda line: line.startswith("VLLM::EngineCore"), 3, 3),
)


class Watched:
    """The run from outside: what its jobs have told, and the processes of its cluster."""

    def __init__(self, folder: Path, ray_pid: int) -> None:
        self._events = EventLog(folder / "shared" / "runs" / RUN / "events.jsonl")
        self._ray_pid = ray_pid
        self.recovery_s: dict[str, float] = {}

    def told(self) -> list[Metrics | Resumed]:
        return [event for event in self._events.earlier().whole if isinstance(event, Metrics | Resumed)]

    def has_told(self, attempt: int, step: int = 0) -> bool:
        """Whether this attempt has begun, and has told the numbers of this step."""
        now = 0
        for event in self.told():
            now = event.attempt if isinstance(event, Resumed) else now
            if now == attempt and (step == 0 or (isinstance(event, Metrics) and event.step == step)):
                return True
        return False

    def processes(self, killing: Killing) -> list[psutil.Process]:
        """Those of this cluster only."""
        found = []
        for process in psutil.Process(self._ray_pid).children(recursive=True):
            try:
                # A title that a process gives itself may be longer than its command line was.
                line = " ".join(process.cmdline()).strip()
            except psutil.Error:
                continue
            if killing.is_it(line):
                found.append(process)
        return found


def command(folder: Path) -> list[str]:
    eval_set = build_eval_set("maze_2d", 7, 9, 6)
    write_eval_set(eval_set, folder / "eval.json")
    settings = {
        "run_name": RUN,
        "platform.job.max_training_attempts": len(KILLINGS) + 1,
        "platform.job.stall_timeout_s": 300,
        "platform.report.reports_dir": folder / "reports",
        "platform.tracking.logs_dir": folder / "runs",
        "platform.train.shared_dir": folder / "shared",
        "platform.train.data.eval_manifest": folder / "eval.json",
        "platform.train.data.eval_sha256": eval_set.sha256,
        "platform.train.data.num_train_mazes": 32,
        "platform.judge.num_mazes": 6,
        # The rehearsal is told that they hold.
        "platform.readiness.nodes.skip": ["all_reduce"],
        "max_steps": NUM_STEPS,
        "mazes_per_step": 3,
        "platform.train.grpo.mini_batch_mazes": 3,
        "rollouts_per_maze": 4,
        "platform.train.grpo.micro_batch_size": 4,
        "eval_interval": INTERVAL,
        "export_interval": INTERVAL,
    }
    arguments = [f"{key}={value}" for key, value in settings.items()]
    return [str(Path(sys.executable).with_name("maze-retrain")), "run", "local", *arguments]


def wait_for(what: str, holds: Callable[[], bool], run: subprocess.Popen[str], timeout_s: float) -> None:
    ends_s = time.monotonic() + timeout_s
    while not holds():
        assert run.poll() is None, f"the run ended before {what}"
        assert time.monotonic() < ends_s, f"{what} did not happen within {timeout_s:g} s"
        time.sleep(0.2)


def test_a_training_whose_driver_policy_worker_and_engine_are_killed_ends_as_if_nothing_had_been(
    services: dict[str, str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    ray = LocalServices(Layout(ROOT, Path(services["PREFECT_HOME"]).parent), print).running()["ray"]
    watched = Watched(tmp_path, ray.pid)
    with (tmp_path / "stdout").open("w") as out:
        run = subprocess.Popen(
            command(tmp_path), cwd=ROOT, env=services, stdout=out, stderr=subprocess.STDOUT, text=True
        )
    try:
        for killing in KILLINGS:
            step = killing.after_step
            wait_for(
                f"step {step} of attempt {killing.attempt}",
                lambda: watched.has_told(killing.attempt, step),  # noqa: B023 - asked at once
                run,
                1200,
            )
            victims = watched.processes(killing)
            assert victims, f"no {killing.what} is found"
            for process in victims:
                process.kill()
            killed_s = time.monotonic()
            wait_for("the next attempt", lambda: watched.has_told(killing.attempt + 1), run, 900)  # noqa: B023
            begun_s = time.monotonic() - killed_s
            record_property(f"recovery_s {killing.what}", round(begun_s))
            print(f"{killing.what} killed: the next attempt began after {begun_s:.0f} s")
        assert run.wait(2400) == 0, (tmp_path / "stdout").read_text()[-4000:]
    finally:
        if run.poll() is None:
            run.terminate()
            run.wait(120)
        print((tmp_path / "stdout").read_text())
    report = json.loads((tmp_path / "reports" / f"{RUN}.json").read_text())
    print(*report["died"], sep="\n")
    assert [died["submission_id"] for died in report["died"]] == [f"{RUN}-train-{number}" for number in (1, 2, 3)]
    assert all("\n" not in died["cause"] for died in report["died"])
    assert [row["step"] for row in report["evals"]] == [0, 2, 4]

    client = MlflowClient(services["MLFLOW_TRACKING_URI"])
    parent = client.get_run(report["mlflow"]["parent_run_id"])
    told = {
        event.step: event.values[LOSS]
        for event in watched.told()
        if isinstance(event, Metrics) and LOSS in event.values
    }
    kept = [(point.step, point.value) for point in client.get_metric_history(parent.info.run_id, "train/loss")]
    duplicates, lost = len(kept) - len({step for step, _ in kept}), set(told) - {step for step, _ in kept}
    record_property("duplicates", duplicates)
    record_property("lost", len(lost))
    assert (sorted(step for step, _ in kept), duplicates) == (list(range(1, NUM_STEPS + 1)), 0)
    assert dict(kept) == pytest.approx(told), "what was trained again replaces what was broken off"
    below = f"tags.`mlflow.parentRunId` = '{parent.info.run_id}' and tags.`maze.role` = 'training'"
    attempts = client.search_runs([parent.info.experiment_id], below, order_by=["attributes.start_time"])
    assert [attempt.info.status for attempt in attempts] == ["FAILED"] * 3 + ["FINISHED"]
    for attempt in attempts:
        steps = [point.step for point in client.get_metric_history(attempt.info.run_id, LOSS)]
        assert len(steps) == len(set(steps))
