"""Following a job to its end: its log read through broken connections, until it is whole or the job has stalled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from tasks.errors import LogBrokeOff, TrainingJobFailed, TrainingStalled
from tasks.jobs.api import JobsClient, JobState
from tasks.jobs.story import JobStory, Sinks

MAX_REREADS = 3
"""Times that the log of a job that is over is taken up again where it breaks off."""
MAX_RECONNECT_S = 60.0
"""The pause before a log is taken up again doubles up to this while it brings no news."""


@dataclass(frozen=True)
class FollowLimits:
    """How long to wait for what."""

    stall_timeout_s: float
    """For news of a job."""
    reconnect_s: float
    """Before its log is taken up again, at first."""


def follow_job(
    jobs: JobsClient,
    submission_id: str,
    sinks: Sinks,
    limits: FollowLimits,
    story: JobStory | None = None,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> JobStory:
    """Follow a job to its end, taking up its log again whenever the connection breaks.

    Only a line that was not heard before is news; connections come and go. A log is whole when it was read from its
    start after the job had ended. Whoever hands in a ``story`` has it when the job fails, too.

    Raises TrainingJobFailed with the job's own words, TrainingStalled after ``limits.stall_timeout_s`` without news; a
    stalled job is stopped first.
    """
    story = JobStory() if story is None else story
    last_news_s, pause_s = clock(), limits.reconnect_s
    was_final, rereads_left = False, MAX_REREADS
    while True:
        num_heard, silent_s = story.num_lines, clock() - last_news_s
        log = _Log(jobs.log_lines(submission_id, max(0.0, limits.stall_timeout_s - silent_s)))
        for line in islice(log, num_heard, None):
            last_news_s = clock()
            story.hear(line, sinks)
        state = jobs.state(submission_id)
        if state.is_final:
            if was_final and (log.end == "closed" or not rereads_left):
                return _ended(story, submission_id, state)
            rereads_left -= was_final
            was_final = True
        elif log.end == "silent" or clock() - last_news_s >= limits.stall_timeout_s:
            jobs.stop(submission_id)
            raise TrainingStalled(_how_it_stalled(story, submission_id, state, limits))
        # A proxy that closes idle connections would have the whole log read again every few seconds.
        pause_s = limits.reconnect_s if story.num_lines > num_heard else min(2 * pause_s, MAX_RECONNECT_S)
        if not was_final or log.end != "closed":
            sleep(pause_s)


class _Log:
    """One reading of a job's log, and how it ended. What its reader raises meanwhile is not the log's end."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.end: Literal["closed", "broke off", "silent"] = "closed"

    def __iter__(self) -> Iterator[str]:
        try:
            yield from self._lines
        except LogBrokeOff:
            self.end = "broke off"
        except TimeoutError:
            self.end = "silent"


def _ended(story: JobStory, submission_id: str, state: JobState) -> JobStory:
    story.end = state
    if state.status != "SUCCEEDED":
        raise TrainingJobFailed(story.why_it_ended(submission_id, state))
    return story


def _how_it_stalled(story: JobStory, submission_id: str, state: JobState, limits: FollowLimits) -> str:
    unknown = "" if state.is_known else f" Ray calls it {state.status}, a word that this version does not know."
    return (
        f"job {submission_id} said nothing new for {limits.stall_timeout_s:g} s at step {story.last_step} and was "
        f"stopped.{unknown} Look at the engine log in the run's logs folder, then run again: it goes on from its last "
        "checkpoint"
    )
