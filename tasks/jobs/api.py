"""Ray Jobs as the stages use them: a few verbs, and a job's state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class JobState:
    """A Ray job as the Jobs API describes it."""

    status: str
    """PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED."""
    message: str

    @property
    def is_final(self) -> bool:
        return self.status in ("STOPPED", "SUCCEEDED", "FAILED")


class JobsClient(Protocol):
    """Ray Jobs: the verbs that a stage uses."""

    def submission_ids(self) -> list[str]:
        """Every job that the cluster remembers."""
        ...

    def submit(self, submission_id: str, entrypoint: str, env_vars: dict[str, str]) -> None: ...

    def state(self, submission_id: str) -> JobState: ...

    def log_lines(self, submission_id: str, silence_s: float) -> Iterator[str]:
        """Every line from the start to the job's end, each whole.

        Raises LogBrokeOff when the connection breaks, TimeoutError after ``silence_s`` seconds without a word.
        """
        ...

    def stop(self, submission_id: str) -> None: ...
