"""Secrets of a job's environment, kept from those who would print them or hand them to Ray.

SkyRL (0.4) prints ``HF_TOKEN`` as it hands it to the workers, and what a job hands to Ray stands in Ray's state and
logs. Workers have theirs as the job has: from their pod's environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

SECRET = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|APIKEY|KEY)(_|$)", re.IGNORECASE)
"""Part of the name of a variable that holds a secret."""


@contextmanager
def hidden() -> Iterator[None]:
    """Meanwhile the environment has no variable that is named like a secret."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if SECRET.search(name)}
    try:
        yield
    finally:
        os.environ.update(kept)
