"""The run's gauges in a real Ray: set by a job's driver, as training does, scraped where Prometheus would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl.ray_metrics import GAUGES, PARTS
from tasks.adapters.ray_jobs import RayJobs
from tests.services.loopback import Loopback, wait_until

pytestmark = pytest.mark.slow_s(30)

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import ray, time, urllib.request
from rl.events import Evaluated, EventLog, Metrics
from rl.ray_metrics import RunGauges
from rl.score import EvalReport, Outcome

ray.init(log_to_driver=False)
log = EventLog(listener=RunGauges("run-a").hear)
values = {"reward/avg_raw_reward": 0.75, "timing/step": 40.0, "timing/generate": 16.0, "rollouts/trajectories": 64}
log.emit(Metrics(step=3, values=values))
outcomes = tuple(Outcome(seed=i, solved=i < 48, actions="S", unparsable_replies=0) for i in range(64))
log.emit(Evaluated(report=EvalReport(step=3, eval_set_sha256="e" * 64, model_id="m", outcomes=outcomes)))
(node,) = ray.nodes()
address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
for _ in range(120):
    text = urllib.request.urlopen(address).read().decode()
    if "ray_maze_eval_mazes{" in text:
        break
    time.sleep(0.5)
print(*(line for line in text.splitlines() if "ray_maze_" in line), sep="\\n")
"""


@pytest.fixture
def cluster() -> Iterator[Loopback]:
    loopback = Loopback(ROOT, num_workers=0)
    try:
        loopback.start()
        yield loopback
    finally:
        loopback.stop()


def test_prometheus_finds_every_gauge_with_its_run(cluster: Loopback) -> None:
    script = cluster.folder / "gauges.py"
    script.write_text(SCRIPT)
    jobs = RayJobs(cluster.jobs_address)
    jobs.submit("gauges", f"cd {ROOT} && {ROOT}/.venv-train/bin/python {script}", {"PYTHONPATH": str(ROOT)})
    wait_until(lambda: jobs.state("gauges").is_final)
    lines = list(jobs.log_lines("gauges", 30))
    assert jobs.state("gauges").status == "SUCCEEDED", lines[-20:]
    found = [re.fullmatch(r"ray_(maze_\w+)\{(.*)\} (\S+)", line) for line in lines]
    samples = [(match[1], match[2], float(match[3])) for match in found if match]
    assert {name for name, _, _ in samples} == set(GAUGES)
    assert all('run_name="run-a"' in tags for _, tags, _ in samples)
    values = {name: value for name, tags, value in samples if "part=" not in tags}
    assert values["maze_solve_rate"] == 0.75
    assert values["maze_rollouts_per_second"] == 4.0
    assert values["maze_last_step"] == 3
    parts = {match[1] for _, tags, _ in samples if (match := re.search(r'\bpart="(\w+)"', tags))}
    assert parts == set(PARTS.values())
    described = [line for line in lines if line.startswith("# HELP ray_maze_solve_rate")]
    assert described == [f"# HELP ray_maze_solve_rate {GAUGES['maze_solve_rate']}"]
