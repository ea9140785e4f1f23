"""A run's page in Prefect: log lines, a progress bar, tables, pictures. Artifacts are the flow run's, under
short keys that stay the same: Prefect shows each key's history over all runs.

Log lines go through Prefect's own queue. Artifacts are requests to its server, so whoever makes a page says how they
are sent: through an outbox where something must go on meanwhile (tracking.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
from prefect import get_client, get_run_logger
from prefect.artifacts import Artifact, ImageArtifact, MarkdownArtifact, ProgressArtifact, TableArtifact
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.client.schemas.objects import Artifact as Kept
from prefect.client.schemas.sorting import ArtifactSort
from prefect.runtime import flow_run
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from tasks.evidence.outbox import Entry, ObserverAway

Send = Callable[..., object]
"""``send(verb, **arguments)``, arguments as JSON."""


class PrefectPage:
    """The page of whatever flow or task run says something."""

    def __init__(self, run_name: str, send: Send) -> None:
        self._run_name, self._send = run_name, send

    def say(self, text: str) -> None:
        get_run_logger().info(text)

    def warn(self, text: str) -> None:
        get_run_logger().error(text)

    def job_line(self, text: str) -> None:
        self.say(text)

    def table(self, key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
        self._make(TableArtifact(key=key, table=[dict(row) for row in rows], description=self._of(description)))

    def markdown(self, key: str, text: str, description: str) -> None:
        self._make(MarkdownArtifact(key=key, markdown=text, description=self._of(description)))

    def picture(self, key: str, url: str) -> None:
        self._make(ImageArtifact(key=key, image_url=url, description=self._of(key)))

    def progress(self, done: int, total: int, text: str) -> None:
        """One bar, moved along."""
        description = self._of(f"step {done} of {total}, {text}")
        self._make(ProgressArtifact(key="progress", progress=100.0 * done / total, description=description), "move")
        self.say(f"step {done} of {total}: {text}")

    def _make(self, artifact: Artifact, verb: str = "make") -> None:
        made = ArtifactCreate(
            key=artifact.key,
            type=artifact.type,
            description=artifact.description,
            data=artifact.format(),
            flow_run_id=_uuid(flow_run.id),
        )
        self._send(verb, artifact=made.model_dump(mode="json"))

    def _of(self, description: str) -> str:
        return f"{self._run_name}: {description}"


class PageTaker:
    """Tells Prefect's server what comes out of the outbox.

    Where an answer is lost nobody knows what arrived, so the page is looked at before it is told: an artifact that is
    the newest of its key already is not made again, and the bar that is there is moved.
    """

    def __init__(self) -> None:
        self._bars: dict[str, UUID] = {}

    def take(self, entry: Entry) -> None:
        """Raises ObserverAway where asking again may help, httpx.HTTPStatusError for a refusal."""
        # Prefect's client would post again by itself, and hold up the run's end while its server is away.
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
            self.send(entry.verb, **entry.arguments)

    def send(self, verb: str, artifact: dict[str, Any]) -> None:
        """The same at once, with the patience of Prefect's client."""
        wanted = ArtifactCreate.model_validate(artifact)
        bar = f"{wanted.flow_run_id} {wanted.key}"
        with _told_apart(), get_client(sync_client=True) as client:
            if verb == "move" and bar in self._bars:
                _change(client, self._bars[bar], wanted)
                return
            there = _newest(client, wanted)
            if there is None or (verb == "make" and not _is_same(there, wanted)):
                there = client.create_artifact(wanted)
            elif verb == "move":
                _change(client, there.id, wanted)
            self._bars[bar] = there.id

    def send_or_warn(self, verb: str, artifact: dict[str, Any]) -> None:
        """The same for a run without an outbox: what the page does not take is a line of the log."""
        try:
            self.send(verb, artifact)
        except (ObserverAway, httpx.HTTPStatusError) as error:
            get_run_logger().error(f"not on this run's page: {artifact['key']} ({error})")


def log_warning(text: str) -> None:
    """A line of the log that must not be overlooked, from whatever flow this is."""
    get_run_logger().warning(text)


def _newest(client: SyncPrefectClient, wanted: ArtifactCreate) -> Kept | None:
    """Of this key on the page; one that belongs to no flow run is on nobody's."""
    if wanted.flow_run_id is None or wanted.key is None:
        return None
    on_page = ArtifactFilter(
        key=ArtifactFilterKey(any_=[wanted.key]),
        flow_run_id=ArtifactFilterFlowRunId(any_=[wanted.flow_run_id]),
    )
    found = client.read_artifacts(artifact_filter=on_page, sort=ArtifactSort.CREATED_DESC, limit=1)
    return found[0] if found else None


def _is_same(there: Kept, wanted: ArtifactCreate) -> bool:
    return (there.data, there.description) == (wanted.data, wanted.description)


def _change(client: SyncPrefectClient, artifact_id: UUID, wanted: ArtifactCreate) -> None:
    client.update_artifact(artifact_id, ArtifactUpdate(data=wanted.data, description=wanted.description))


@contextmanager
def _told_apart() -> Iterator[None]:
    """The absence of Prefect's server, and its refusal."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        if error.response.status_code < 500 and error.response.status_code not in (408, 429):
            raise
        raise ObserverAway(f"Prefect's server answers {error.response.status_code}") from error
    except httpx.TransportError as error:
        raise ObserverAway(f"Prefect's server does not answer ({error!r})") from error
    except RuntimeError as error:
        # How Prefect's client says that it could not ask the server for its version.
        if not isinstance(error.__cause__, httpx.HTTPError):
            raise
        raise ObserverAway(str(error)) from error


def _uuid(text: str | None) -> UUID | None:
    return UUID(text) if text else None
