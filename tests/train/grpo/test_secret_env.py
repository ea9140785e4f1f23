"""What SkyRL prints of a job's environment, and hands to Ray, holds no secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rl.grpo import secret_env
from rl.grpo.config_table import RunDirs, skyrl_overrides
from tests.train.conftest import train_job

SECRETS = ("HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "MODAL_TOKEN_SECRET", "SKYRL_PROXY_PASSWORD")


def test_skyrl_is_shown_no_secret_and_they_are_there_again_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loguru import logger
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.utils.utils import prepare_runtime_environment

    job = train_job(tmp_path)
    config = SkyRLTrainConfig.from_cli_overrides(skyrl_overrides(job, RunDirs(str(tmp_path), job.run_name), None))
    for name in SECRETS:
        monkeypatch.setenv(name, f"canary-{name}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    said: list[str] = []
    sink = logger.add(said.append)
    try:
        with secret_env.hidden():
            handed = prepare_runtime_environment(config)
        assert handed["HF_HUB_OFFLINE"] == "1"
        assert "canary" not in f"{handed}{said}"
        assert [os.environ[name] for name in SECRETS] == [f"canary-{name}" for name in SECRETS]
        # Why it is done: without it the token is printed.
        prepare_runtime_environment(config)
        assert "canary-HF_TOKEN" in str(said)
    finally:
        logger.remove(sink)


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("AWS_SECRET_ACCESS_KEY", True),
        ("MAZE_ENDPOINT_API_KEY", True),
        ("RAY_AUTH_TOKEN", True),
        ("MLFLOW_TRACKING_PASSWORD", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("KEYBOARD", False),
        ("NCCL_DEBUG", False),
    ],
)
def test_a_secret_is_known_by_its_name(name: str, is_secret: bool) -> None:
    assert bool(secret_env.SECRET.search(name)) is is_secret
