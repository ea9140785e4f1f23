"""Stage: wait until the Ray cluster offers what the run needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tasks.cluster.settings import ClusterSettings
from tasks.errors import ClusterNotReady
from tasks.jobs.ray_jobs import RayJobs, cluster_resources
from tasks.jobs.submit import live_job
from tasks.records import ClusterRef
from tasks.run import RunContext
from tasks.settings import JobSettings
from tasks.stage import stage


@stage
def ensure_cluster(context: RunContext, settings: ClusterSettings, job: JobSettings) -> ClusterRef:
    """The cluster, once enough GPUs are free, and how jobs run there; raises ClusterNotReady or ClusterUnreachable.

    GPUs that this run's own training holds already are not waited for.
    """
    own_job = live_job(RayJobs(settings.jobs_address), f"{context.run_name}-train")
    if own_job:
        context.page.say(f"Ray job {own_job} of this run goes on: it is followed, and nothing is waited for")
        found = cluster_resources(settings.jobs_address)
    else:
        found = wait_for_gpus(settings, look=cluster_resources, say=context.page.say)
    return ClusterRef(
        own_job=own_job,
        jobs_address=settings.jobs_address,
        ray_version=found["ray_version"],
        num_gpus=found["gpus_total"],
        job=job,
    )


def wait_for_gpus(
    settings: ClusterSettings,
    look: Callable[[str], dict[str, Any]],
    say: Callable[[str], object],
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Look every ``poll_s`` until ``num_gpus`` are free, for at most ``timeout_s``; returns what was seen last."""
    deadline = clock() + settings.timeout_s
    while True:
        found = look(settings.jobs_address)
        if found["gpus_free"] >= settings.num_gpus:
            return found
        state = f"{found['gpus_free']:g} of {found['gpus_total']:g} GPUs are free, {settings.num_gpus:g} are wanted"
        if clock() >= deadline:
            raise ClusterNotReady(
                f"after {settings.timeout_s:g} s {state} at {settings.jobs_address}; end the job that holds them, "
                "bring nodes up, or lower cluster.num_gpus"
            )
        say(f"waiting for the cluster: {state}")
        sleep(settings.poll_s)
