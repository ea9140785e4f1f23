"""What no test may leave behind for the next."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def forgets_its_aws_identity() -> Iterator[None]:
    """boto3 keeps the first identity it finds for the whole process; the next test reads its own environment."""
    yield
    if boto3 := sys.modules.get("boto3"):
        boto3.DEFAULT_SESSION = None
