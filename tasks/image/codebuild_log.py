"""The log of a CodeBuild build, line by line from CloudWatch Logs, each line once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

NUM_LAST_LINES = 25


class BuildLog:
    """Says every line; keeps the last ones for an error."""

    def __init__(self, logs: Any, say: Callable[[str], object]) -> None:
        self._logs, self._say = logs, say
        self._token: str | None = None
        self._excused = False
        self._last: deque[str] = deque(maxlen=NUM_LAST_LINES)

    def read(self, place: Mapping[str, str]) -> bool:
        """Say what is new; False at its end. ``place`` is what the build says of its log, which may not exist yet."""
        if not place.get("groupName") or not place.get("streamName"):
            return False
        more = {"nextToken": self._token} if self._token else {}
        try:
            page = self._logs.get_log_events(
                logGroupName=place["groupName"], logStreamName=place["streamName"], startFromHead=True, **more
            )
        except (BotoCoreError, ClientError) as error:
            self._excuse(error)
            return False
        for event in page["events"]:
            self._hear(event["message"])
        moved = page["nextForwardToken"] != self._token
        self._token = page["nextForwardToken"]
        return moved

    def drain(self, place: Mapping[str, str]) -> None:
        """Say all that is left of an ended build."""
        while self.read(place):
            pass

    def last_lines(self) -> str:
        return "\n".join(self._last) or "(no line of its log was seen)"

    def _excuse(self, error: Exception) -> None:
        """A build goes on without its log being read; that is said once, unless the log is only not there yet."""
        code = error.response.get("Error", {}).get("Code") if isinstance(error, ClientError) else ""
        if code != "ResourceNotFoundException" and not self._excused:
            self._excused = True
            self._say(f"the build's log cannot be read (logs:GetLogEvents): {error}")

    def _hear(self, message: str) -> None:
        for line in message.splitlines():
            if line.strip():
                self._last.append(line)
                self._say(line)
