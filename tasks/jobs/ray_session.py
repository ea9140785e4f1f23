"""Sessions with a Ray cluster: how one is opened, and what it means when it is not.

Ray hands an address to the module that its scheme names. For ``sagemaker_ray://`` that is
toolkit-for-ray-on-sagemaker-ai: a token of the EKS identity buys a signed address from the Kubernetes API, the address
buys a cookie, and both may fail with errors of the toolkit's own, which are told apart by their words here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ray.exceptions import AuthenticationError

from tasks.errors import ClusterUnreachable, SubmissionRefused

_STATUS = re.compile(r"status code (\d{3})|HTTP (\d{3})")
_WORDED = {"Access denied": 403, "Authentication failed": 401}
"""Refusals that the toolkit puts into words."""
_PASSING = re.compile(r"temporarily unavailable|timed out|[Uu]nable to connect|Failed to connect|token was rejected")
"""What the toolkit and Ray say when nobody answers for now, and of a signed address whose key was just rotated."""


def opened[Session](
    open_session: Callable[[], Session], address: str, pauses_s: Sequence[float], sleep: Callable[[float], object]
) -> Session:
    """What ``open_session`` gives; while the other side only stumbles it is asked again after each pause.

    Raises ClusterUnreachable, or SubmissionRefused where the cluster will not have this identity.
    """
    left_s = list(pauses_s)
    while True:
        try:
            return open_session()
        # A module that Ray imports by name raises what it likes.
        except Exception as error:
            if not left_s or not is_passing(error):
                raise _meaning(address, error) from error
            sleep(left_s.pop(0))


def status_of(error: Exception) -> int | None:
    """HTTP status that an error of Ray's client or of a session tells of, or None where no answer came."""
    if isinstance(error, AuthenticationError):
        # Ray words both refusals itself and leaves the number out.
        return 401 if "Authentication required" in str(error) else 403
    response = getattr(error, "response", None)
    if response is not None:
        return int(response.status_code)
    text = str(error)
    if match := _STATUS.search(text):
        return int(match[1] or match[2])
    return next((status for words, status in _WORDED.items() if words in text), None)


def is_passing(error: Exception) -> bool:
    """Whether the same request may go through in a moment."""
    return (status_of(error) or 0) >= 500 or bool(_PASSING.search(str(error)))


def refusal(address: str, status: int) -> str:
    """What a refusal of a fresh session means and what to do about it."""
    if status == 401:
        return f"{address} answers 401 to a fresh session: the credentials have expired; log in again"
    return (
        f"{address} answers 403 to a fresh session; under HyperPod's private access strategy only the identity that "
        "created the RayCluster (role and session name) may submit, and credentials that were renewed under another "
        "session name are another identity (EKS Pod Identity's are; docker/worker.yaml keeps one, by "
        "AWS_ROLE_SESSION_NAME): create it as this identity (cleanup, then run again), or set hosting.access_strategy "
        "to public"
    )


def _meaning(address: str, error: Exception) -> ClusterUnreachable | SubmissionRefused:
    status = status_of(error)
    if status in (401, 403):
        return SubmissionRefused(f"{refusal(address, status)} ({error})")
    return ClusterUnreachable(
        f"no Ray Jobs API at {address} ({error}); start the cluster (locally: make up) or correct cluster.jobs_address"
    )
