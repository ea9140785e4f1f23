"""A run's page in Prefect: log lines, a progress bar, tables, pictures. Artifacts are named ``<run>-<key>``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)


class PrefectPage:
    """The page of whatever flow or task run says something."""

    def __init__(self, run_name: str) -> None:
        self._run_name = run_name
        self._progress_id: UUID | None = None

    def say(self, text: str) -> None:
        get_run_logger().info(text)

    def warn(self, text: str) -> None:
        get_run_logger().error(text)

    def table(self, key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
        create_table_artifact(table=[dict(row) for row in rows], key=self._key(key), description=description)

    def markdown(self, key: str, text: str, description: str) -> None:
        create_markdown_artifact(markdown=text, key=self._key(key), description=description)

    def picture(self, key: str, url: str) -> None:
        create_image_artifact(image_url=url, key=self._key(key))

    def progress(self, done: int, total: int, text: str) -> None:
        """One bar, moved along."""
        percent = 100.0 * done / total
        description = f"{self._run_name}: step {done} of {total}, {text}"
        if self._progress_id is None:
            made = create_progress_artifact(progress=percent, key=self._key("progress"), description=description)
            self._progress_id = made if isinstance(made, UUID) else None
        else:
            update_progress_artifact(artifact_id=self._progress_id, progress=percent, description=description)
        self.say(f"step {done} of {total}: {text}")

    def _key(self, key: str) -> str:
        return f"{self._run_name}-{key}"
