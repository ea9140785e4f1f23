"""``maze-retrain doctor``: the checks of readiness, a line for each, without a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from flows.cli.failure import DONE, FAILED
from flows.cli.run import prepared
from flows.settings.retrain import RetrainSettings
from tasks.evidence.tracking import Unrecorded
from tasks.readiness.doctor import look_around
from tasks.records import Check, ClusterRef
from tasks.run import RunContext

RUN_NAME = "doctor"
"""Whose the probes are."""


def examine(console: Console, profile: str) -> int:
    """Print every check as soon as it is known; returns the exit code.

    Raises BadKnob, NotRunning before anything is asked.
    """
    _, parameters = prepared(f"retrain/{profile}", [])
    settings = RetrainSettings.of(parameters["platform"], parameters["knobs"])
    console.print(f"looking at what retrain/{profile} needs; nodes may take minutes", markup=False)
    cluster = ClusterRef(jobs_address=settings.cluster.jobs_address, ray_version="", num_gpus=0, job=settings.job)
    context = RunContext(RUN_NAME, Unrecorded(), Silent())
    holds: list[bool] = []
    for check in look_around(context, settings.readiness, settings.needs, cluster):
        console.print(line(check), soft_wrap=True, highlight=False, markup=False)
        holds.append(check.holds)
    broken = holds.count(False)
    console.print(f"{broken} of {len(holds)} checks do not hold" if broken else f"all {len(holds)} checks hold")
    return FAILED if broken else DONE


def line(check: Check) -> str:
    """``ok     name: what is``, or what is and what to do."""
    said = " ".join(check.found.split())
    return f"ok     {check.name}: {said}" if check.holds else f"FAILS  {check.name}: {said}; {check.remedy}"


class Silent:
    """A page that nobody reads: the lines at the end say it all."""

    def say(self, text: str) -> None:
        """Told at the end."""

    def warn(self, text: str) -> None:
        """Told at the end."""

    def job_line(self, text: str) -> None:
        """The job's own log has it."""

    def table(self, key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
        """Told at the end."""

    def markdown(self, key: str, text: str, description: str) -> None:
        """Told at the end."""

    def picture(self, key: str, url: str) -> None:
        """None is made."""

    def progress(self, done: int, total: int, text: str) -> None:
        """Told at the end."""
