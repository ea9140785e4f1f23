"""SkyRL's own check of a run's settings, asked for without starting anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from rl.settings import TrainJob
from tests.train.conftest import ROOT, train_job


def resolve(job: TrainJob) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rl.resolve", job.model_dump_json()]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_resolved_configuration_is_printed(tmp_path: Path) -> None:
    done = resolve(train_job(tmp_path))
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["trainer"]["policy"]["model"]["lora"]["rank"] == 32


def test_what_skyrl_refuses_is_one_line_with_its_reason(tmp_path: Path) -> None:
    job = train_job(tmp_path)
    # 8 mazes x 8 rollouts do not divide among 3 GPUs.
    odd = job.model_copy(update={"train": job.train.model_copy(update={"num_gpus_per_node": 3})})
    done = resolve(odd)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("SkyRL refuses these settings: ")
