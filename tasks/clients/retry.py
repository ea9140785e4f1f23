"""Requests that got no answer, or "not now", are asked again: here stands which, how often, and why they may be.

| asked | by | again, because |
|---|---|---|
| chats and the model list of an endpoint | ``patient_session`` | they change nothing; a greedy reply is the same one |
| Ray Serve's REST API | ``patient_session`` | a PUT says the whole of what is wanted, so twice is once |
| MLflow | its own client, as ``MLFLOW_REQUESTS`` says | what is made is looked for; figures carry their time |
| a page in Prefect | nobody: the outbox tells it again | what is on the page is looked for before |
| S3 | botocore, ``serving/store.py`` | names never change their meaning; the champion is looked at afterwards |
| CodeBuild and its logs | botocore, ``tasks/image/codebuild.py`` | builds carry a token of their own |
| Ray Jobs | ``tasks/jobs/ray_session.py`` | jobs are submitted under names |
| a training that died | ``tasks/training/attempts.py`` | the next job goes on from the newest whole checkpoint |
| Kubernetes | ``PATIENT_READS``; a change without an answer ends its stage | the next attempt finds what is made |

What a server says of the request itself - 400, 404, and 500, which is how engines report their death - is final.
"""

from __future__ import annotations

import os

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

PATIENT = Retry(
    total=5,
    backoff_factor=0.5,
    backoff_max=10,
    status_forcelist=(429, 502, 503, 504),
    # All methods: each row above says why.
    allowed_methods=None,
    # The last answer is handed on: it says why.
    raise_on_status=False,
    respect_retry_after_header=True,
    retry_after_max=30,
)
"""At once, then after 1, 2, 4 and 8 s; or when the server says."""
PATIENT_READS = PATIENT.new(allowed_methods=frozenset({"GET"}))
"""The same where only a look is sure to change nothing."""

MLFLOW_REQUESTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
}
"""At once, then after 2 and 4 s, and up to a second more each; 60 s for an answer. Its own limits let a server that is
away hold up its caller for four minutes; whoever can wait so long asks again later (tasks/evidence/outbox.py)."""


def limit_mlflow_requests() -> None:
    """What MLflow's client reads at each request, for this process; what somebody has set stays."""
    for name, value in MLFLOW_REQUESTS.items():
        os.environ.setdefault(name, value)


def patient_session(retry: Retry = PATIENT, num_connections: int = 10) -> requests.Session:
    """A session that asks again; what it raises or hands on in the end is final."""
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=num_connections, max_retries=retry))
    return session
