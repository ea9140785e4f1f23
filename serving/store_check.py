"""Ray job entry point: does the object store take what a job on this cluster sends? (``python -m serving.store_check``)

The adapter is published from the cluster that trained, with the job's own AWS identity; that the orchestrator may
write says nothing about it.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from serving.publish import try_store
from serving.store import s3_client

CHECK = "the object store takes, returns and deletes a job's object"
REMEDY = (
    "check bucket and endpoint, and the identity of the cluster's pods: its association and the role's policy "
    "(locally: make up)"
)


class StoreCheck(BaseModel):
    """What the job's command line carries."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    adapters_uri: str = Field(pattern=r"^s3://[^/]+/.*[^/]$")
    name: str
    """Makes the object's name differ from others'."""
    timeout_s: float = Field(gt=0)
    """Time for all of it, in seconds: the AWS chain alone tries for minutes where nobody answers."""


def check(job: StoreCheck) -> dict[str, Any]:
    """The ``checked`` event (rl/events.py), holding or not."""
    answer = [False, f"no answer within {job.timeout_s:g} s"]

    def ask() -> None:
        try:
            answer[:] = [True, try_store(s3_client(), job.adapters_uri, job.name)]
        except Exception as error:
            answer[:] = [False, f"{type(error).__name__}: {error}"]

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(job.timeout_s)
    holds, found = answer
    return {"kind": "checked", "name": CHECK, "holds": holds, "found": found, "remedy": "" if holds else REMEDY}


def main(argv: list[str]) -> None:
    sys.stdout.write(f"@event {json.dumps(check(StoreCheck.model_validate_json(argv[1])))}\n")


if __name__ == "__main__":
    main(sys.argv)
