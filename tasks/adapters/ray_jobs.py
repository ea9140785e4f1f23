"""Ray Jobs API: the one owner of ray's job client.

Addresses are ``http://``, ``https://``, or a scheme whose module Ray imports to get a session, such as
``sagemaker_ray://<cluster>/<namespace>`` (package toolkit-for-ray-on-sagemaker-ai). Such a session is a cookie that
Ray's client takes once, when it is made, and HyperPod's ends after six hours: a longer run needs another client.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import requests
from ray.dashboard.modules.dashboard_sdk import parse_cluster_info
from ray.exceptions import AuthenticationError
from ray.job_submission import JobSubmissionClient

from tasks.adapters import ClusterUnreachable, JobState, SubmissionRefused

RETRY_PAUSES_S = (1.0, 5.0, 15.0, 30.0)
"""Between tries of a request that met a server error or no server."""
UNFINISHED = ("PENDING", "RUNNING")
_STATUS = re.compile(r"status code (\d{3})")


class RayJobs:
    """The jobs of one cluster. Every request renews a session that has ended and outlasts a server that stumbles.

    Raises ClusterUnreachable when nobody answers, SubmissionRefused when the cluster will not have us.
    """

    def __init__(self, address: str, sleep: Callable[[float], object] = time.sleep) -> None:
        self._address, self._sleep = address, sleep
        self._client = self._connect()

    def submission_ids(self) -> list[str]:
        return [job.submission_id for job in self._ask(lambda client: client.list_jobs()) if job.submission_id]

    def unfinished(self) -> list[str]:
        """Jobs that wait or run."""
        jobs = self._ask(lambda client: client.list_jobs())
        return [job.submission_id for job in jobs if job.submission_id and str(job.status.value) in UNFINISHED]

    def submit(self, submission_id: str, entrypoint: str, env_vars: dict[str, str]) -> None:
        def request(client: JobSubmissionClient) -> None:
            try:
                client.submit_job(
                    submission_id=submission_id,
                    entrypoint=entrypoint,
                    runtime_env={"env_vars": env_vars},
                    entrypoint_num_cpus=1,
                )
            except RuntimeError as error:
                # An earlier try arrived and its answer did not.
                if "already exists" not in str(error):
                    raise

        self._ask(request)

    def state(self, submission_id: str) -> JobState:
        info = self._ask(lambda client: client.get_job_info(submission_id))
        return JobState(status=str(info.status.value), message=info.message or "")

    def stop(self, submission_id: str) -> None:
        self._ask(lambda client: client.stop_job(submission_id))

    def _connect(self) -> JobSubmissionClient:
        try:
            return JobSubmissionClient(self._address)
        except (ConnectionError, RuntimeError, AuthenticationError, requests.RequestException) as error:
            raise ClusterUnreachable(
                f"no Ray Jobs API at {self._address} ({error}); start the cluster (locally: make up) or correct "
                "cluster.jobs_address"
            ) from error

    def _ask[Answer](self, request: Callable[[JobSubmissionClient], Answer]) -> Answer:
        renewed = False
        pauses_s = list(RETRY_PAUSES_S)
        while True:
            try:
                return request(self._client)
            except (RuntimeError, AuthenticationError, requests.RequestException, ConnectionError) as error:
                status = status_of(error)
                if status in (401, 403):
                    if renewed:
                        raise SubmissionRefused(_refusal(self._address, status)) from error
                    self._client, renewed = self._connect(), True
                elif isinstance(error, RuntimeError) and (status is None or status < 500):
                    raise
                elif pauses_s:
                    self._sleep(pauses_s.pop(0))
                else:
                    raise ClusterUnreachable(
                        f"the Ray Jobs API at {self._address} did not answer {len(RETRY_PAUSES_S) + 1} times ({error});"
                        " look at the head's pod and log"
                    ) from error

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


def status_of(error: Exception) -> int | None:
    """HTTP status that an error of Ray's client tells of, or None where no answer came."""
    if isinstance(error, AuthenticationError):
        # Ray words both refusals itself and leaves the number out.
        return 401 if "Authentication required" in str(error) else 403
    response = getattr(error, "response", None)
    if response is not None:
        return int(response.status_code)
    match = _STATUS.search(str(error))
    return int(match[1]) if match else None


def _refusal(address: str, status: int) -> str:
    if status == 401:
        return f"{address} answers 401 to a fresh session: the credentials have expired; log in again"
    return (
        f"{address} answers 403 to a fresh session; under HyperPod's private access strategy only the identity that "
        "created the RayCluster (role and session name) may submit: create it as this identity (cluster-up), or set "
        "hosting.access_strategy to public"
    )


def cluster_resources(address: str, timeout_s: float = 10.0) -> dict[str, Any]:
    """Ray version and free and total resources, from the dashboard's API.

    Raises ClusterUnreachable.
    """

    def get(path: str) -> Any:
        answer = requests.get(
            f"{session.address}{path}", cookies=session.cookies, headers=session.headers, timeout=timeout_s
        )
        answer.raise_for_status()
        return answer.json()

    try:
        session = parse_cluster_info(address)
        version, status = get("/api/version"), get("/api/cluster_status")
    except (requests.RequestException, RuntimeError) as error:
        raise ClusterUnreachable(
            f"the Ray dashboard at {address} does not answer ({error}); start the cluster (locally: make up) or "
            "correct cluster.jobs_address"
        ) from error
    usage = status["data"]["clusterStatus"]["loadMetricsReport"]["usage"]
    used, total = usage.get("GPU", (0.0, 0.0))
    return {"ray_version": version["ray_version"], "gpus_total": float(total), "gpus_free": float(total) - float(used)}
