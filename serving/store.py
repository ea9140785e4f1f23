"""S3 as everything here asks it: tried again for a while, and never waited for without an end."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config

PATIENT = Config(retries={"mode": "standard", "total_max_attempts": 6}, connect_timeout=10, read_timeout=60)
"""botocore's standard mode: no connection, 5xx and "slow down" again, with growing pauses of up to 20 s. It may write
twice: names never change their meaning, and the one object that does is looked at afterwards (serving/champion.py)."""
BRISK = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=1, read_timeout=2)
"""Where somebody waits for the answer who can do without: once, and two seconds at most without a byte."""


def s3_client(config: Config = PATIENT) -> Any:
    """By the usual AWS chain."""
    return boto3.client("s3", config=config)
