"""Stage: wait until the Ray cluster offers what the run needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prefect import get_run_logger, task

from tasks.cluster.settings import ClusterSettings
from tasks.errors import ClusterNotReady
from tasks.jobs.ray_jobs import cluster_resources
from tasks.records import ClusterRef


@task
def ensure_cluster(settings: ClusterSettings) -> ClusterRef:
    """The cluster, once enough GPUs are free; raises ClusterNotReady or ClusterUnreachable."""
    logger = get_run_logger()
    return wait_for_gpus(settings, look=cluster_resources, say=logger.info)


def wait_for_gpus(
    settings: ClusterSettings,
    look: Callable[[str], dict[str, Any]],
    say: Callable[[str], object],
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> ClusterRef:
    """Look every ``poll_s`` until ``num_gpus`` are free, for at most ``timeout_s``."""
    deadline = clock() + settings.timeout_s
    while True:
        found = look(settings.jobs_address)
        if found["gpus_free"] >= settings.num_gpus:
            return ClusterRef(
                jobs_address=settings.jobs_address, ray_version=found["ray_version"], num_gpus=found["gpus_total"]
            )
        state = f"{found['gpus_free']:g} of {found['gpus_total']:g} GPUs are free, {settings.num_gpus:g} are wanted"
        if clock() >= deadline:
            raise ClusterNotReady(
                f"after {settings.timeout_s:g} s {state} at {settings.jobs_address}; end the job that holds them, "
                "bring nodes up, or lower cluster.num_gpus"
            )
        say(f"waiting for the cluster: {state}")
        sleep(settings.poll_s)
