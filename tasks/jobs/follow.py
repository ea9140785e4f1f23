"""Following a job to its end: its log read through broken connections, until it is whole or the job has stalled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from tasks.errors import DoesNotStop, LogBrokeOff, TrainingJobFailed, TrainingStalled
from tasks.jobs.api import JobsClient, JobState
from tasks.jobs.story import JobStory, Sinks

MAX_REREADS = 3
"""Times that the log of a job that is over is taken up again where it breaks off."""
MAX_RECONNECT_S = 60.0
"""The pause before a log is taken up again doubles up to this while it brings no news."""
CHATTER_S = 60.0
"""A job that prints without a pause is listened to so much longer: what is read late may still tell of progress."""
UNDER_WAY = "under_way.txt"
"""What a job did when it made no progress any more."""
STOP_LOOKS, STOP_LOOK_S = 15, 2.0
"""Ray gives a job 3 s to end (RAY_JOB_STOP_WAIT_TIME_S) and kills it then."""


@dataclass(frozen=True)
class FollowLimits:
    """How long to wait for what."""

    stall_timeout_s: float
    """For progress of a job."""
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

    Raises TrainingJobFailed with the job's own words, TrainingStalled after ``limits.stall_timeout_s`` without
    progress; a stalled job is asked what it does, stopped, and heard to its end first.
    """
    story = JobStory() if story is None else story
    last_progress_s, pause_s = clock(), limits.reconnect_s
    was_final, rereads_left = False, MAX_REREADS

    def left_s() -> float:
        return last_progress_s + limits.stall_timeout_s - clock()

    while True:
        num_heard = story.num_lines
        log = _Log(jobs.log_lines(submission_id, left_s))
        for line in islice(log, num_heard, None):
            if story.hear(line, sinks):
                last_progress_s = clock()
            elif left_s() < -CHATTER_S and not was_final:
                log.end = "silent"
                break
        state = jobs.state(submission_id)
        if state.is_final:
            if was_final and (log.end == "closed" or not rereads_left):
                return _ended(story, submission_id, state)
            rereads_left -= was_final
            was_final = True
        elif log.end == "silent" or left_s() <= 0:
            end = _stopped(jobs, submission_id, story, sinks, sleep)
            kind = TrainingStalled if end.is_final else DoesNotStop
            raise kind(_how_it_stalled(story, submission_id, state, end, limits))
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


def _stopped(
    jobs: JobsClient, submission_id: str, story: JobStory, sinks: Sinks, sleep: Callable[[float], object]
) -> JobState:
    """Stop a job that stalled, with what it did meanwhile kept, and hear what it says as it ends: its stacks."""
    sinks.wrote(UNDER_WAY, jobs.under_way(submission_id))
    jobs.stop(submission_id)
    state, num_looks = jobs.state(submission_id), 1
    while not state.is_final and num_looks < STOP_LOOKS:
        sleep(STOP_LOOK_S)
        state, num_looks = jobs.state(submission_id), num_looks + 1
    for line in islice(_Log(jobs.log_lines(submission_id, lambda: 0.0)), story.num_lines, None):
        story.hear(line, sinks)
    return state


def _how_it_stalled(story: JobStory, submission_id: str, state: JobState, end: JobState, limits: FollowLimits) -> str:
    unknown = "" if state.is_known else f" Ray calls it {state.status}, a word that this version does not know."
    stopped = "was stopped" if end.is_final else f"is {end.status} although it was told to stop"
    return (
        f"job {submission_id} made no progress for {limits.stall_timeout_s:g} s at step {story.last_step} and "
        f"{stopped}.{unknown} What it did is at the end of its log and in {UNDER_WAY} of its attempt in MLflow; look "
        "there, then run again: it goes on from its last checkpoint"
    )
