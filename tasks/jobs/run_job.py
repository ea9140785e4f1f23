"""One module of this project as a Ray job of a run, from its submission to its end."""

from __future__ import annotations

from pydantic import BaseModel

from tasks.jobs.follow import JobStory
from tasks.jobs.news import JobNews
from tasks.jobs.ray_jobs import RayJobs
from tasks.jobs.submit import entrypoint, followed_to_its_end, limits_of, submit_once
from tasks.records import ClusterRef
from tasks.run import RunContext


def run_job(context: RunContext, cluster: ClusterRef, stage: str, module: str, order: BaseModel) -> JobStory:
    """Run one module on the cluster as the job ``<run>-<stage>-<attempt>`` and follow it to its end.

    Raises TrainingJobFailed or TrainingStalled.
    """
    jobs = RayJobs(cluster.jobs_address)
    command = entrypoint(cluster.job, module, order.model_dump_json())
    submission_id = submit_once(jobs, f"{context.run_name}-{stage}", command, context.marks)
    context.page.say(f"following Ray job {submission_id}")
    context.training.tags({f"ray.{stage}": submission_id})
    story = followed_to_its_end(jobs, submission_id, JobNews(context), limits_of(cluster.job))
    story.submission_id = submission_id
    return story
