"""What no test may leave behind for the next."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest


@pytest.fixture(autouse=True)
def forgets_its_aws_identity() -> Iterator[None]:
    """boto3 keeps the first identity it finds for the whole process; the next test reads its own environment."""
    yield
    boto3.DEFAULT_SESSION = None
