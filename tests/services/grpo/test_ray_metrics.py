"""The run's gauges in a real Ray: set by a job's driver, as training does, scraped where Prometheus would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rl.grpo.ray_metrics import GAUGES, PARTS
from tasks.jobs.ray_jobs import RayJobs
from tests.services.loopback import wait_until

pytestmark = pytest.mark.slow_s(30)

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import ray, time, urllib.request
from rl.events import Evaluated, EventLog, Metrics
from rl.grpo.ray_metrics import RunGauges
from rl.maze.score import EvalReport, EvalRules, Outcome
from rl.settings import MazeSettings

ray.init(log_to_driver=False)
log = EventLog(listener=RunGauges("run-a").hear)
values = {"reward/avg_raw_reward": 0.75, "timing/step": 40.0, "timing/generate": 16.0, "rollouts/trajectories": 64}
log.emit(Metrics(step=3, values=values))
rules = EvalRules(
    eval_set_sha256="e" * 64, maze=MazeSettings(), max_turns=15, parsing="strict", max_reply_tokens=8, temperature=0.0
)
outcomes = tuple(Outcome(seed=i, solved=i < 48, actions="S", unparsable_replies=0) for i in range(64))
log.emit(Evaluated(report=EvalReport(step=3, rules=rules, model_id="m", outcomes=outcomes)))
(node,) = ray.nodes()
address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
for _ in range(240):
    lines = [line for line in urllib.request.urlopen(address).read().decode().splitlines() if "ray_maze_" in line]
    if any(line.startswith("ray_maze_eval_mazes{") and "run-a" in line for line in lines):
        break
    time.sleep(0.25)
print(*lines, sep="\\n")
"""


def test_prometheus_finds_every_gauge_with_its_run(services: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "gauges.py"
    script.write_text(SCRIPT)
    jobs = RayJobs(services["RAY_JOBS_ADDRESS"])
    jobs.submit("gauges", f"cd {ROOT} && {ROOT}/.venv-train/bin/python {script}", {"PYTHONPATH": str(ROOT)})
    wait_until(lambda: jobs.state("gauges").is_final)
    lines = list(jobs.log_lines("gauges", lambda: 30.0))
    assert jobs.state("gauges").status == "SUCCEEDED", lines[-20:]
    found = [re.fullmatch(r"ray_(maze_\w+)\{(.*)\} (\S+)", line) for line in lines]
    everybody_s = [(match[1], match[2], float(match[3])) for match in found if match]
    assert all('run_name="' in tags for _, tags, _ in everybody_s)
    # Other runs may have left theirs in the same cluster.
    samples = [sample for sample in everybody_s if 'run_name="run-a"' in sample[1]]
    assert {name for name, _, _ in samples} == set(GAUGES)
    values = {name: value for name, tags, value in samples if "part=" not in tags}
    assert values["maze_solve_rate"] == 0.75
    assert values["maze_rollouts_per_second"] == 4.0
    assert values["maze_last_step"] == 3
    parts = {match[1] for _, tags, _ in samples if (match := re.search(r'\bpart="(\w+)"', tags))}
    assert parts == set(PARTS.values())
    described = [line for line in lines if line.startswith("# HELP ray_maze_solve_rate")]
    assert described == [f"# HELP ray_maze_solve_rate {GAUGES['maze_solve_rate']}"]
