"""Ray Jobs as the stages use them: a few verbs, and a job's state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

FINAL = ("STOPPED", "SUCCEEDED", "FAILED")
LIVE = ("PENDING", "RUNNING")


@dataclass(frozen=True)
class JobState:
    """A Ray job as the Jobs API describes it."""

    status: str
    """PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED; another word where Ray has got a new one."""
    message: str
    entrypoint: str = ""
    """The command that it was submitted with."""

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def is_known(self) -> bool:
        """Whether this version knows what the word means."""
        return self.status in FINAL + LIVE


class JobsClient(Protocol):
    """Ray Jobs: the verbs that a stage uses."""

    def submission_ids(self) -> list[str]:
        """Every job that the cluster remembers."""
        ...

    def submit(
        self, submission_id: str, entrypoint: str, env_vars: dict[str, str], metadata: Mapping[str, str] | None = None
    ) -> None:
        """``metadata`` stays with the job as it was submitted: who takes it up changes nothing of it."""
        ...

    def metadata(self, submission_id: str) -> Mapping[str, str]: ...

    def state(self, submission_id: str) -> JobState: ...

    def log_lines(self, submission_id: str, left_s: Callable[[], float]) -> Iterator[str]:
        """Every line from the start, each whole: to the job's end, or until the connection ends before it.

        Raises LogBrokeOff when the connection breaks, TimeoutError when nothing is said and no time is ``left_s``.
        """
        ...

    def under_way(self, submission_id: str) -> str:
        """What the job is doing, as far as its cluster says it. Never raises."""
        ...

    def stop(self, submission_id: str) -> None: ...
