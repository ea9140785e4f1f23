"""The object in S3 that says which adapter is champion. The endpoint resolves ``<base>:champion`` by it.

It holds the whole of a change - who is champion, who was before, whether that was a way back - so that one write is
the change: there is no state in between. Aliases in MLflow follow it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError
from pydantic import BaseModel, ConfigDict

from serving.store import ABSENT, code_of

LOST = ("PreconditionFailed", "412", "ConditionalRequestConflict", "409", *ABSENT)
"""How S3 says that the object is not any more what a conditional write was made for."""


class ChampionMoved(RuntimeError):
    """Somebody else changed the champion at the same time; theirs stands, this change did not happen."""


class Champion(BaseModel):
    """One change of the champion, as it is kept."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    adapter_name: str
    sha256: str
    """Over the digests of the adapter's files."""
    previous: str | None = None
    """Who was champion before: never the champion itself."""
    rolled_back: bool = False
    """Whether this went back to a former champion, away from ``previous``."""
    change: str = ""
    """Made anew for each change, so that two of the same content can be told apart."""


@dataclass(frozen=True)
class Seen:
    """What the object held when it was looked at."""

    champion: Champion
    etag: str
    since: datetime | None = None
    """When it was written."""


class ChampionObject:
    """Reads and conditionally writes the one object."""

    def __init__(self, s3: Any, uri: str) -> None:
        self._s3, self._uri = s3, uri
        self._bucket, _, self._key = uri.removeprefix("s3://").partition("/")

    def read(self) -> Seen | None:
        """None while nobody was promoted."""
        try:
            found = self._s3.get_object(Bucket=self._bucket, Key=self._key)
        except ClientError as error:
            if code_of(error) in ABSENT:
                return None
            raise
        return Seen(Champion.model_validate_json(found["Body"].read()), found["ETag"], found.get("LastModified"))

    def write(self, champion: Champion, over: Seen | None) -> None:
        """Replace what was seen, or the nothing that was; raises ChampionMoved where it is something else by now.

        S3 refuses the write then. What it holds afterwards is looked at all the same: a store may not know conditions
        (rclone's does not), and an answer that got lost makes the client ask again and hear that the write, its own,
        was made already.
        """
        made = champion.model_copy(update={"change": uuid.uuid4().hex})
        condition = {"IfMatch": over.etag} if over else {"IfNoneMatch": "*"}
        try:
            self._s3.put_object(Bucket=self._bucket, Key=self._key, Body=made.model_dump_json().encode(), **condition)
        except ClientError as error:
            if code_of(error) not in LOST:
                raise
        found = self.read()
        if found is None or found.champion.change != made.change:
            stands = found.champion.adapter_name if found else "nobody"
            raise ChampionMoved(
                f"{self._uri}: {champion.adapter_name} did not become champion, because it was changed at the same "
                f"time and {stands} is champion now; look at that one, then promote or roll back again if need be"
            )
