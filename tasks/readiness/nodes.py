"""The readiness checks that only the training cluster itself can make: one Ray job, its events as checks."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from pydantic import BaseModel

from rl.readiness.settings import CHECKS, NodeReadiness, ReadyJob
from serving.store_check import CHECK as STORE_CHECK
from serving.store_check import StoreCheck
from tasks.errors import StageError, TrainingStalled
from tasks.jobs.api import JobsClient
from tasks.jobs.follow import FollowLimits
from tasks.jobs.story import JobStory, Sinks
from tasks.jobs.submit import followed_to_its_end, submit_anew
from tasks.readiness.settings import RunNeeds
from tasks.records import Check
from tasks.settings import JobSettings

ENDED = "the checks on the nodes ran to their end"
REMEDY = "read the job's log (ray job logs); the nodes' Python is job.python, the project job.project_dir"
QUEUE_S = 120.0
"""How long the job may wait for its own process beyond the time of its checks."""


def check_nodes(
    connect: Callable[[], JobsClient], job: JobSettings, order: ReadyJob, store: StoreCheck, sinks: Sinks
) -> tuple[Check, ...]:
    """Submit the job, follow it, return what it found. A job that dies is one more check that does not hold."""
    story, ended_by = JobStory(), ""
    stall_s = order.checks.timeout_s + store.timeout_s + QUEUE_S
    try:
        jobs = connect()
        submission_id = submit_anew(jobs, f"{order.run_name}-ready", command(job, order, store))
        followed_to_its_end(jobs, submission_id, sinks, FollowLimits(stall_s, job.reconnect_s), story)
    except TrainingStalled:
        ended_by = f"it said nothing for {stall_s:g} s and was stopped"
    except StageError as error:
        ended_by = str(error)
    found = [Check(**checked.model_dump(exclude={"kind"})) for checked in story.checks.values()]
    names = [name for name, _ in CHECKS.values()]
    untold = [name for name in (*names, STORE_CHECK) if name not in story.checks]
    if ended_by or untold:
        text = f"{ended_by or 'it succeeded'}; nothing was told of: {', '.join(untold) or 'none'}"
        found.append(Check(name=ENDED, holds=False, found=text, remedy=REMEDY))
    return tuple(found)


def command(job: JobSettings, order: ReadyJob, store: StoreCheck) -> str:
    """Both programs in one job, the second whatever becomes of the first: rl and serving do not know each other."""
    programs: tuple[tuple[str, BaseModel], ...] = (("serving.store_check", store), ("rl.readiness.job", order))
    runs = [shlex.join([job.python, "-m", module, document.model_dump_json()]) for module, document in programs]
    return f"cd {shlex.quote(job.project_dir)} && {{ {'; '.join(runs)}; }}"


def ready_job(checks: NodeReadiness, needs: RunNeeds, run_name: str) -> ReadyJob:
    """What the training job will want, as far as nodes can be asked for it."""
    return ReadyJob(
        run_name=run_name,
        checks=checks,
        device=needs.device,
        num_gpus=needs.num_gpus,
        num_policy_nodes=needs.num_policy_nodes,
        num_gpus_per_node=needs.num_gpus_per_node,
        env=needs.env,
        shared_dir=needs.shared_dir,
        min_free_disk_gb=needs.min_free_disk_gb,
        model_path=needs.model_path,
        tracking_uri=needs.tracking_uri,
    )
