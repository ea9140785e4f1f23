"""Ray Jobs API: the one owner of ray's job client.

Addresses are ``http://``, ``https://``, or a scheme whose module Ray imports to get a session, such as
``sagemaker_ray://<cluster>/<namespace>`` (package toolkit-for-ray-on-sagemaker-ai). Such a session is a cookie that
Ray's client takes once, when it is made, and HyperPod's ends after six hours: a longer run needs another client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import aiohttp
import requests
from ray.dashboard.modules.dashboard_sdk import parse_cluster_info
from ray.exceptions import AuthenticationError
from ray.job_submission import JobSubmissionClient

from tasks.clients.ray_token import token_headers
from tasks.errors import ClusterUnreachable, LogBrokeOff, SubmissionRefused
from tasks.jobs.api import JobState
from tasks.jobs.ray_session import opened, refusal, status_of
from tasks.jobs.ray_state import under_way

RETRY_PAUSES_S = (1.0, 5.0, 15.0, 30.0)
"""Between tries of a request that met a server error or no server."""
OPENING_PAUSES_S = (1.0, 5.0)
"""Between tries to open the first session: a person may wait for it."""
FIRST_LOOK_S = 1.0
"""Silence after which a job's state is asked while its log is tailed; each further look takes twice as long."""
UNFINISHED = ("PENDING", "RUNNING")
ON_THE_HEAD = {"node:__internal_head__": 0.001}
"""Drivers leave machines with GPUs to those who need them. Ray puts a driver on the head only as long as it asks for no
CPU (job_manager.py, _get_label_selector), and this resource only the head has (ray/_common/constants.py)."""


class RayJobs:
    """The jobs of one cluster. Every request renews a session that has ended and outlasts a server that stumbles.

    ``marks`` go with every job that is submitted here, into its metadata: whose it is.

    Raises ClusterUnreachable when nobody answers, SubmissionRefused when the cluster will not have us.
    """

    def __init__(
        self,
        address: str,
        sleep: Callable[[float], object] = time.sleep,
        marks: Mapping[str, str] | None = None,
    ) -> None:
        self._address, self._sleep, self._marks = address, sleep, dict(marks or {})
        self._client = self._connect(OPENING_PAUSES_S)

    def submission_ids(self) -> list[str]:
        return [job.submission_id for job in self._ask(lambda client: client.list_jobs()) if job.submission_id]

    def unfinished(self) -> list[str]:
        """Jobs that wait or run."""
        jobs = self._ask(lambda client: client.list_jobs())
        return [job.submission_id for job in jobs if job.submission_id and str(job.status.value) in UNFINISHED]

    def submit(
        self, submission_id: str, entrypoint: str, env_vars: dict[str, str], metadata: Mapping[str, str] | None = None
    ) -> None:
        def request(client: JobSubmissionClient) -> None:
            try:
                client.submit_job(
                    submission_id=submission_id,
                    entrypoint=entrypoint,
                    runtime_env={"env_vars": env_vars},
                    entrypoint_num_cpus=1,
                    entrypoint_resources=ON_THE_HEAD,
                    metadata={**self._marks, **(metadata or {})},
                )
            except RuntimeError as error:
                # An earlier try arrived and its answer did not.
                if "already exists" not in str(error):
                    raise

        self._ask(request)

    def state(self, submission_id: str) -> JobState:
        info = self._ask(lambda client: client.get_job_info(submission_id))
        return JobState(status=str(info.status.value), message=info.message or "", entrypoint=info.entrypoint)

    def metadata(self, submission_id: str) -> Mapping[str, str]:
        info = self._ask(lambda client: client.get_job_info(submission_id))
        return info.metadata or {}

    def stop(self, submission_id: str) -> None:
        self._ask(lambda client: client.stop_job(submission_id))

    def _connect(self, pauses_s: Sequence[float]) -> JobSubmissionClient:
        def open_session() -> JobSubmissionClient:
            return JobSubmissionClient(self._address, headers=token_headers(self._address))

        return opened(open_session, self._address, pauses_s, self._sleep)

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
                        raise SubmissionRefused(refusal(self._address, status)) from error
                    self._client, renewed = self._connect(RETRY_PAUSES_S), True
                elif isinstance(error, RuntimeError) and (status is None or status < 500):
                    raise
                elif pauses_s:
                    self._sleep(pauses_s.pop(0))
                else:
                    raise ClusterUnreachable(
                        f"the Ray Jobs API at {self._address} did not answer {len(RETRY_PAUSES_S) + 1} times ({error});"
                        " look at the head's pod and log"
                    ) from error

    def under_way(self, submission_id: str) -> str:
        return under_way(self._address, submission_id)

    def log_lines(self, submission_id: str, left_s: Callable[[], float]) -> Iterator[str]:
        """The job's log from its first line: tailed while it runs, the rest at once when it is over.

        Ray's own stream ends up to five seconds after the job, and ends as properly when a proxy closes it; so the
        job's state is asked, and what the stream did not bring is fetched whole.

        Raises LogBrokeOff when the connection breaks, and TimeoutError when nothing is said and no time is ``left_s``.
        """
        num_told = 0
        if not self.state(submission_id).is_final:
            for line in self._tailed(submission_id, left_s):
                num_told += 1
                yield line
        if self.state(submission_id).is_final:
            yield from islice(self._whole_log(submission_id), num_told, None)

    def _whole_log(self, submission_id: str) -> list[str]:
        """Lines of a job that is over; raises LogBrokeOff where the head cannot read them."""
        try:
            text = self._ask(lambda client: client.get_job_logs(submission_id))
        except ClusterUnreachable as error:
            raise LogBrokeOff(str(error)) from error
        return text.removesuffix("\n").split("\n") if text else []

    def _tailed(self, submission_id: str, left_s: Callable[[], float]) -> Iterator[str]:
        """Whole lines as the websocket brings them, until it closes or the job is seen to be over."""
        loop, rest = asyncio.new_event_loop(), ""
        stream: Any = self._client.tail_job_logs(submission_id)
        try:
            while True:
                asked = loop.create_task(anext(stream))
                if not self._answered(loop, asked, submission_id, left_s):
                    return
                try:
                    rest += asked.result()
                except StopAsyncIteration:
                    return
                except (aiohttp.ClientError, RuntimeError) as error:
                    # What came of a line is not the line: it is heard whole when the log is taken up again.
                    raise LogBrokeOff(str(error)) from error
                *lines, rest = rest.split("\n")
                yield from lines
        finally:
            loop.run_until_complete(stream.aclose())
            loop.close()

    def _answered(
        self,
        loop: asyncio.AbstractEventLoop,
        asked: asyncio.Task[str],
        submission_id: str,
        left_s: Callable[[], float],
    ) -> bool:
        """Wait for the stream's next words; False when the job is over.

        Raises TimeoutError when no time is left. Words that are on their way are waited for even then: they may tell
        of progress.
        """
        look_s = FIRST_LOOK_S
        while True:
            pause_s = min(look_s, max(FIRST_LOOK_S, left_s()))
            try:
                loop.run_until_complete(asyncio.wait({asked}, timeout=pause_s))
            except BaseException:
                # Ctrl-C, or a cancellation: the stream cannot be closed while it is asked, and what came first is told.
                asked.cancel()
                loop.run_until_complete(asyncio.wait({asked}))
                raise
            look_s = 2 * look_s
            if asked.done():
                return True
            over = self.state(submission_id).is_final
            if left_s() > 0 and not over:
                continue
            asked.cancel()
            loop.run_until_complete(asyncio.wait({asked}))
            if not over:
                raise TimeoutError
            return False


def cluster_resources(
    address: str, timeout_s: float = 10.0, sleep: Callable[[float], object] = time.sleep
) -> dict[str, Any]:
    """Ray version and free and total resources, from the dashboard's API.

    Raises ClusterUnreachable and SubmissionRefused.
    """

    def look() -> tuple[Any, Any]:
        session = parse_cluster_info(address, headers=token_headers(address))
        answers = [
            requests.get(
                f"{session.address}{path}", cookies=session.cookies, headers=session.headers, timeout=timeout_s
            )
            for path in ("/api/version", "/api/cluster_status")
        ]
        for answer in answers:
            answer.raise_for_status()
        return answers[0].json(), answers[1].json()

    version, status = opened(look, address, OPENING_PAUSES_S, sleep)
    usage = status["data"]["clusterStatus"]["loadMetricsReport"]["usage"]
    used, total = usage.get("GPU", (0.0, 0.0))
    return {"ray_version": version["ray_version"], "gpus_total": float(total), "gpus_free": float(total) - float(used)}
