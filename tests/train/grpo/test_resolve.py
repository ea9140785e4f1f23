"""SkyRL's own check of a run's settings, asked for without starting anything."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rl.grpo.resolve import main
from tests.train.conftest import train_job


def test_the_resolved_configuration_is_all_that_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["rl.grpo.resolve", train_job(tmp_path).model_dump_json()])
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["trainer"]["policy"]["model"]["lora"]["rank"] == 32


def test_what_skyrl_refuses_ends_the_process_with_its_reason(tmp_path: Path) -> None:
    job = train_job(tmp_path)
    # 8 mazes x 8 rollouts do not divide among 3 GPUs.
    odd = job.model_copy(update={"train": job.train.model_copy(update={"num_gpus_per_node": 3})})
    with pytest.raises(SystemExit, match="SkyRL refuses these settings: "):
        main(["rl.grpo.resolve", odd.model_dump_json()])
