"""A GRPO step of ours against stock SkyRL on the same work: ``python -m bench.grpo [rounds=2] [visgym=FOLDER]``.

The sides take turns as Ray jobs (bench/side.py) of the retrain/local settings; the environments take turns beside them.
Writes ``.local/bench/latest.json``; a figure that was not measured is null and has its reason under ``not_measured``.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import psutil

from bench.names import FIRST_ROLLOUT
from bench.serving import spread
from flows.deployments import load_settings
from flows.settings.retrain import RetrainSettings
from rl.events import Fault, Resumed, Rollouts, Saved
from rl.grpo.settings import TrainJob
from rl.maze.run_mazes import prepare_mazes
from rl.maze.score import EvalReport
from tasks.jobs.ray_jobs import RayJobs
from tasks.jobs.submit import entrypoint, followed_to_its_end, limits_of, submit_once

OUT = Path(".local/bench/latest.json")
NUM_STEPS = 2
STOCK_ENGINE = {"worker_cls": "vllm.v1.worker.cpu_worker.CPUWorker", "mm_processor_cache_gb": 0}
"""vLLM's own CPU worker, and the cache size that SkyRL sets."""


class Collected:
    """Sinks of a followed job: its metrics, and when its first rollout was under way."""

    def __init__(self) -> None:
        self.values: dict[int, dict[str, float]] = {}
        self.first_rollout_at: float | None = None

    def line(self, text: str) -> None:
        """The log is not shown."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.values[step] = {**self.values.get(step, {}), **values}

    def progress(self, done: int, total: int, text: str) -> None:
        if text == FIRST_ROLLOUT:
            self.first_rollout_at = time.monotonic()
        print(f"  {text}", flush=True)

    def evaluation(self, report: EvalReport) -> None:
        """The bench evaluates nothing."""

    def saved(self, event: Saved) -> None:
        """Nothing of it is kept."""

    def event(self, document: str) -> None:
        """Nothing of it is kept."""

    def wrote(self, name: str, text: str) -> None:
        """Nothing of it is kept."""

    def rollouts(self, sample: Rollouts) -> None:
        """Nothing of it is kept."""

    def fault(self, fault: Fault) -> None:
        print(f"  {fault.boundary}: {fault.message}", flush=True)

    def attempt(self, begun: Resumed) -> None:
        """Each side is measured from its first step."""

    def inherited(self, numbers: Mapping[int, Mapping[str, float]], evaluations: Mapping[int, EvalReport]) -> None:
        """Nothing leads to a first step."""

    def completed(self) -> None:
        """The job's end says it, too."""


def short_job(settings: RetrainSettings, side: str, run_name: str) -> TrainJob:
    """The local run, cut to NUM_STEPS and without its evaluations."""
    train = settings.train.model_dump()
    train["grpo"] |= {"max_steps": NUM_STEPS}
    train |= {"eval_interval": 10**6, "export_interval": 10**6}
    return side_job(settings.model_copy(update={"train": settings.train.model_validate(train)}), side, run_name)


def side_job(settings: RetrainSettings, side: str, run_name: str) -> TrainJob:
    """The local run with this side's engine."""
    document = settings.train.model_dump()
    if side != "ours":
        document["engine"]["init_kwargs"] = STOCK_ENGINE
    mazes = prepare_mazes(settings.train.data)
    return TrainJob(
        run_name=run_name,
        train=settings.train.model_validate(document),
        train_mazes_sha256=mazes.train_sha256,
    )


def play_side(settings: RetrainSettings, side: str, number: int) -> dict[str, float]:
    """Run one side to its end; seconds, turns and shares by name."""
    job = short_job(settings, side, f"bench-{side}-{secrets.token_hex(4)}-{number}")
    jobs, found = RayJobs(settings.cluster.jobs_address), Collected()
    submitted = time.monotonic()
    command = entrypoint(settings.job, "bench.side", side, "steps", job.model_dump_json())
    submission_id = submit_once(jobs, job.run_name, command)
    followed_to_its_end(jobs, submission_id, found, limits_of(settings.job))
    assert found.first_rollout_at is not None, "the job never said that it generates"
    steps = [values for step, values in found.values.items() if step > 0]
    timing = {
        name: statistics.median(values[f"timing/{key}"] for values in steps)
        for name, key in {
            "step_s": "step",
            "rollout_s": "generate",
            "forward_s": "fwd_logprobs_values_reward",
            "update_s": "policy_train",
            "sync_s": "sync_weights",
        }.items()
    }
    rollouts = {key.removeprefix("bench/"): value for key, value in found.values[0].items() if key.startswith("bench/")}
    return {**timing, **rollouts, "start_s": found.first_rollout_at - submitted}


def env_steps_per_s(env_id: str, visgym: str | None = None) -> float:
    """One measurement in a process of its own."""
    path = os.pathsep.join(filter(None, [visgym, os.getcwd()]))
    command = [sys.executable, "-m", "bench.env", env_id]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True
    )
    return float(done.stdout.splitlines()[-1])


def flow_overhead(report: Mapping[str, Any]) -> float | None:
    """Share of the last run's wall time that no stage accounts for."""
    return 1 - sum(report["timings_s"].values()) / report["wall_s"] if "wall_s" in report else None


def ratios(ours: Sequence[Mapping[str, float]], stock: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The figures by name, each from the medians of its side."""

    def middle(side: Sequence[Mapping[str, float]], name: str) -> float:
        return statistics.median(found[name] for found in side)

    def over(name: str) -> float:
        return middle(ours, name) / middle(stock, name)

    def ours_over(above: str, below: str) -> float:
        return middle(ours, above) / middle(ours, below)

    return {
        "grpo_step_ratio": over("step_s"),
        "rollout_ratio": over("turns_15_s"),
        "growth_15_over_5_turns": ours_over("turns_15_s", "turns_5_s"),
        "lora_over_base": ours_over("turns_15_s", "base_turns_15_s"),
        "engine_busy": middle(ours, "turns_15_busy"),
        "start_ratio": over("start_s"),
        "stock_growth_15_over_5_turns": middle(stock, "turns_15_s") / middle(stock, "turns_5_s"),
        "stock_lora_over_base": middle(stock, "turns_15_s") / middle(stock, "base_turns_15_s"),
    }


def main(argv: list[str]) -> None:
    options = dict(argument.split("=", 1) for argument in argv[1:])
    settings: RetrainSettings = load_settings("retrain/local", {})
    visgym = options.get("visgym")
    sides: dict[str, list[dict[str, float]]] = {"stock": [], "ours": []}
    envs: dict[str, list[float]] = {"ours": [], "visgym": []}
    for number in range(int(options.get("rounds", 2))):
        envs["ours"].append(env_steps_per_s("maze_2d"))
        if visgym:
            envs["visgym"].append(env_steps_per_s("maze_2d/easy", visgym))
        for side, found in sides.items():
            print(f"round {number + 1}, {side}", flush=True)
            found.append(play_side(settings, side, number))
            print(f"  {json.dumps({name: round(value, 2) for name, value in found[-1].items()})}", flush=True)
    document = {**summary(sides, envs, settings), "sides": {side: spreads(found) for side, found in sides.items()}}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


def summary(
    sides: Mapping[str, Sequence[Mapping[str, float]]], envs: Mapping[str, Sequence[float]], settings: RetrainSettings
) -> dict[str, Any]:
    """Machine, date and every figure; null where there was nothing to measure it by."""
    latest = Path(settings.report.reports_dir) / "latest.json"
    overhead = flow_overhead(json.loads(latest.read_text())) if latest.exists() else None
    env_ratio = statistics.median(envs["ours"]) / statistics.median(envs["visgym"]) if envs["visgym"] else None
    missing = {
        "flow_overhead": None if overhead is not None else "no report of a whole run here; run make run first",
        "env_ratio": None if env_ratio is not None else "VisGym is not on PyPI; name its folder: visgym=FOLDER",
    }
    return {
        "date": date.today().isoformat(),
        "machine": f"{psutil.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.machine()}",
        "rounds": len(sides["ours"]),
        **{name: round(value, 3) for name, value in ratios(sides["ours"], sides["stock"]).items()},
        "flow_overhead": None if overhead is None else round(overhead, 4),
        "env_ratio": None if env_ratio is None else round(env_ratio, 2),
        "env_steps_per_s": {name: spread(values) for name, values in envs.items() if values},
        "not_measured": {name: why for name, why in missing.items() if why},
    }


def spreads(found: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    return {name: spread([row[name] for row in found]) for name in found[0]}


if __name__ == "__main__":
    main(sys.argv)
