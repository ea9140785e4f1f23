"""Ray Jobs API over HTTP: the one owner of ray's job client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiohttp
import requests
from ray.job_submission import JobSubmissionClient

from tasks.adapters import ClusterUnreachable, JobState


class RayJobs:
    """One client per address; raises ClusterUnreachable when nobody answers."""

    def __init__(self, address: str) -> None:
        self._address = address
        try:
            self._client = JobSubmissionClient(address)
        except (ConnectionError, RuntimeError) as error:
            raise ClusterUnreachable(
                f"no Ray Jobs API at {address} ({error}); start the cluster (locally: make up) or correct "
                "cluster.jobs_address"
            ) from error

    def submission_ids(self) -> list[str]:
        return [job.submission_id for job in self._client.list_jobs() if job.submission_id]

    def submit(self, submission_id: str, entrypoint: str, env_vars: dict[str, str]) -> None:
        self._client.submit_job(
            submission_id=submission_id,
            entrypoint=entrypoint,
            runtime_env={"env_vars": env_vars},
            entrypoint_num_cpus=1,
        )

    def state(self, submission_id: str) -> JobState:
        info = self._client.get_job_info(submission_id)
        return JobState(status=str(info.status.value), message=info.message or "")

    def log_lines(self, submission_id: str, silence_s: float) -> Iterator[str]:
        """The job's log from its first line, over the websocket that tails it.

        Ends when the job ends or the connection breaks; raises TimeoutError after ``silence_s`` without a word.
        """
        loop = asyncio.new_event_loop()
        try:
            chunks = self._client.tail_job_logs(submission_id).__aiter__()
            rest = ""
            while True:
                try:
                    rest += loop.run_until_complete(asyncio.wait_for(chunks.__anext__(), silence_s))
                except (StopAsyncIteration, aiohttp.ClientError, RuntimeError):
                    break
                *lines, rest = rest.split("\n")
                yield from lines
            if rest:
                yield rest
        finally:
            loop.close()

    def stop(self, submission_id: str) -> None:
        self._client.stop_job(submission_id)


def cluster_resources(address: str, timeout_s: float = 10.0) -> dict[str, Any]:
    """Ray version and free and total resources, from the dashboard's API.

    Raises ClusterUnreachable.
    """
    try:
        version = requests.get(f"{address}/api/version", timeout=timeout_s).json()
        status = requests.get(f"{address}/api/cluster_status", timeout=timeout_s).json()
    except requests.RequestException as error:
        raise ClusterUnreachable(
            f"the Ray dashboard at {address} does not answer ({error}); start the cluster (locally: make up) or "
            "correct cluster.jobs_address"
        ) from error
    usage = status["data"]["clusterStatus"]["loadMetricsReport"]["usage"]
    used, total = usage.get("GPU", (0.0, 0.0))
    return {"ray_version": version["ray_version"], "gpus_total": float(total), "gpus_free": float(total) - float(used)}
