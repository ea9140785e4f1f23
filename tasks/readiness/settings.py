"""Settings of the checks before a job is submitted."""

from __future__ import annotations

from pydantic import Field

from rl.readiness.settings import NodeReadiness
from tasks.settings import Settings


class ReadinessSettings(Settings):
    """The checks before a job is submitted."""

    timeout_s: float = Field(gt=0)
    """Time for one check, in seconds."""
    nodes: NodeReadiness = NodeReadiness()
    """The checks that a job on the training cluster makes."""
