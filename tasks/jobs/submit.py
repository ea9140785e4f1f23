"""Ray jobs by deterministic name: the command, the one submission, the end."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping

from tasks.errors import OtherSettings, StageError, UnknownJobState
from tasks.jobs.api import LIVE, JobsClient
from tasks.jobs.follow import FollowLimits, follow_job
from tasks.jobs.story import JobStory, Sinks
from tasks.settings import JobSettings

TakeUp = Callable[[str, str], bool]
"""``(order of an earlier job, order now)``, as JSON: whether the earlier job's work is what is wanted now."""


def entrypoint(job: JobSettings, module: str, *arguments: str) -> str:
    """The shell command of a Ray job: one module of this project and its arguments, settings as one JSON text."""
    return f"cd {shlex.quote(job.project_dir)} && exec {shlex.join([job.python, '-m', module, *arguments])}"


def is_of(job: str, run_name: str) -> bool:
    """Names are ``<run>-<stage>-<attempt>`` or have a step before the attempt; ``a`` must not end ``a-b``'s jobs."""
    return re.fullmatch(rf"{re.escape(run_name)}-[a-z]+(-\d+)?-\d+", job) is not None


def equal_only(before: str, now: str) -> bool:
    """A job is taken up where it was asked the same."""
    try:
        return json.loads(before) == json.loads(now)
    except json.JSONDecodeError:
        return before == now


def submit_once(
    jobs: JobsClient,
    name: str,
    command: str,
    take_up: TakeUp = equal_only,
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Submit under a deterministic id and return it; a job of this name that runs or has succeeded is taken up.

    Ray refuses a used id, so an attempt after a failed one gets the next number; so does one after a job that was
    asked something else and is over. Raises OtherSettings for such a job that is not over.
    """
    known, chosen = set(jobs.submission_ids()), ""
    attempt = 1
    while (submission_id := f"{name}-{attempt}") in known:
        state = jobs.state(submission_id)
        if not state.is_known:
            raise UnknownJobState(
                f"job {submission_id} is {state.status}, a word that this version does not know; wait until it is over "
                "or stop it (ray job stop), then run again"
            )
        if state.status not in ("FAILED", "STOPPED"):
            if take_up(order_of(state.entrypoint), order_of(command)):
                chosen = submission_id
            elif not state.is_final:
                raise OtherSettings(
                    f"job {submission_id} is {state.status} with other settings; wait for its end or stop it (ray job "
                    "stop), or give this run another run_name"
                )
        attempt += 1
    if not chosen:
        jobs.submit(submission_id, command, {"PYTHONUNBUFFERED": "1"}, metadata)
    return chosen or submission_id


def live_job(jobs: JobsClient, name: str) -> str:
    """The attempt of this name that waits or runs; empty where there is none."""
    known, attempt = set(jobs.submission_ids()), 1
    while (submission_id := f"{name}-{attempt}") in known:
        if jobs.state(submission_id).status in LIVE:
            return submission_id
        attempt += 1
    return ""


def order_of(command: str) -> str:
    """What a job was asked: the last argument of its entry point, settings as JSON."""
    return (shlex.split(command) or ["null"])[-1]


def submit_anew(jobs: JobsClient, name: str, command: str, metadata: Mapping[str, str] | None = None) -> str:
    """Submit under the next number and return the id; only a job of this name that is not over is taken up.

    What an earlier attempt found, even a minute ago, says nothing about now.
    """
    known = set(jobs.submission_ids())
    attempt = 1
    while (submission_id := f"{name}-{attempt}") in known:
        if not jobs.state(submission_id).is_final:
            return submission_id
        attempt += 1
    jobs.submit(submission_id, command, {"PYTHONUNBUFFERED": "1"}, metadata)
    return submission_id


def followed_to_its_end(
    jobs: JobsClient, submission_id: str, sinks: Sinks, limits: FollowLimits, story: JobStory | None = None
) -> JobStory:
    """Follow a job and return its story; whatever ends the following early stops the job.

    Cancellation of a flow arrives here as an exception too: no job is left that nobody follows. What came first is
    what is raised: a stop that fails is a note on it.
    """
    try:
        return follow_job(jobs, submission_id, sinks, limits, story)
    except BaseException as error:
        _stop(jobs, submission_id, error)
        raise


def _stop(jobs: JobsClient, submission_id: str, because: BaseException) -> None:
    """Stop a job that may still run, whatever the look at its state says."""
    try:
        if jobs.state(submission_id).is_final:
            return
    except StageError as error:
        because.add_note(f"the state of job {submission_id} is not known: {error}")
    try:
        jobs.stop(submission_id)
    except StageError as error:
        because.add_note(f"job {submission_id} could not be stopped and may still run: {error}")


def limits_of(job: JobSettings) -> FollowLimits:
    """How long a job of these settings is waited for."""
    return FollowLimits(stall_timeout_s=job.stall_timeout_s, reconnect_s=job.reconnect_s)
