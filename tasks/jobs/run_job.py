"""One module of this project as a Ray job of a run, from its submission to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from tasks.jobs.news import JobNews
from tasks.jobs.raw_log import kept_log
from tasks.jobs.ray_jobs import RayJobs
from tasks.jobs.story import JobStory
from tasks.jobs.submit import TakeUp, entrypoint, equal_only, followed_to_its_end, limits_of, submit_once
from tasks.records import ClusterRef
from tasks.run import RunContext
from tasks.watch import Following

MakeNews = Callable[[RunContext, Any, Callable[[str], object], Callable[[str], object]], JobNews]
"""Of the context, the job's order, what takes its lines and what takes its events."""


def run_job(
    context: RunContext,
    cluster: ClusterRef,
    stage: str,
    module: str,
    order: BaseModel,
    take_up: TakeUp = equal_only,
    make_news: MakeNews = JobNews,
    story: JobStory | None = None,
) -> JobStory:
    """Run one module on the cluster as the job ``<run>-<stage>-<attempt>`` and follow it to its end. Whoever hands in a
    ``story`` has it when the job fails, too.

    Raises TrainingJobFailed or TrainingStalled; OtherSettings where ``take_up`` refuses an earlier job's order.
    """
    jobs = RayJobs(cluster.jobs_address)
    command = entrypoint(cluster.job, module, order.model_dump_json())
    submission_id = submit_once(jobs, f"{context.run_name}-{stage}", command, take_up, context.marks)
    context.page.say(f"following Ray job {submission_id}")
    context.run.tags({f"ray.{stage}": submission_id})
    story = JobStory() if story is None else story
    story.submission_id = submission_id
    with kept_log(context, submission_id) as log:
        context.tell(Following(submission_id, str(log.path or "")))
        news = make_news(context, order, log.line, log.event)
        followed_to_its_end(jobs, submission_id, news, limits_of(cluster.job), story)
        news.finished()
    return story
