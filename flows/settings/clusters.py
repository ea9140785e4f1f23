"""Settings of the flows that make clusters by hand and clean up after a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from flows.parts import InParts, PlatformOf
from tasks.cleanup.settings import CleanupScope
from tasks.cluster.settings import MadeClusters
from tasks.names import RunName


class ClusterUpSettings(InParts):
    """Everything the cluster-up flow needs."""

    knob_paths: ClassVar[Mapping[str, str]] = {"run_name": "run_name"}

    hosting: MadeClusters
    run_name: RunName
    """Label of what is created; clean-up asks for it."""


class CleanupFlowSettings(InParts, CleanupScope):
    """Everything the cleanup flow needs."""

    knob_paths: ClassVar[Mapping[str, str]] = {"run_name": "run_name", "dry_run": "dry_run"}

    run_name: RunName
    """The run whose remains are looked for."""
    dry_run: bool = True
    """Only say what would be removed."""


ClusterUpPlatform = Annotated[dict[str, Any], PlatformOf(ClusterUpSettings)]
CleanupPlatform = Annotated[dict[str, Any], PlatformOf(CleanupFlowSettings)]
