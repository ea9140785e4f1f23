"""Shared by the tests that run in the training environment (.venv-train)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rl.grpo.cpu import bridge as cpu_bridge
from rl.grpo.settings import TrainJob, TrainSettings
from rl.maze.run_mazes import prepare_mazes
from rl.settings import DataSettings

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "rl" / "eval_sets" / "maze_2d_7x9.json"
BASE_MODEL = ROOT / "rl" / "models" / "tiny-qwen3-vl"


@pytest.fixture(scope="session", autouse=True)
def bridge() -> None:
    cpu_bridge.install()


def train_job(shared_dir: Path, **grpo: Any) -> TrainJob:
    data = DataSettings.model_validate(
        {
            "maze": {},
            "eval_manifest": str(MANIFEST),
            "eval_sha256": json.loads(MANIFEST.read_text())["sha256"],
            "num_train_mazes": 16,
        }
    )
    train = TrainSettings.model_validate(
        {
            "model_path": str(BASE_MODEL),
            "shared_dir": str(shared_dir),
            "data": data,
            "lora": {},
            "engine": {
                "device": "cpu",
                "colocate": False,
                "dtype": "float32",
                "enforce_eager": True,
                "max_model_len": 2048,
            },
            "grpo": {"max_steps": 4, "mazes_per_step": 8, "mini_batch_mazes": 8, "learning_rate": 1e-3, **grpo},
            "eval_interval": 2,
            "export_interval": 4,
        }
    )
    return TrainJob(run_name="test", train=train, train_mazes_sha256=prepare_mazes(data).train_sha256)
