"""What a run leaves on its Ray cluster: unfinished jobs, and what only jobs can see, its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import PurePath
from typing import Protocol

from rl.events import Stored
from rl.grpo.clean import CleanJob
from tasks.cleanup.order import Order
from tasks.cleanup.parts import Leftover
from tasks.errors import ClusterUnreachable
from tasks.jobs.api import JobsClient
from tasks.jobs.story import Sinks
from tasks.jobs.submit import entrypoint, followed_to_its_end, is_of, limits_of, submit_anew
from tasks.run import FLOW_RUN
from tasks.settings import JobSettings


class ListedJobs(JobsClient, Protocol):
    """Ray Jobs that also says which of them are not over."""

    def unfinished(self) -> list[str]:
        """Those that wait or run."""
        ...


class Jobs:
    """Ray jobs of the run that wait or run. A cluster that is known to be gone has none; one that is silent may."""

    name = "jobs"

    def __init__(
        self,
        connect: Callable[[], ListedJobs],
        is_gone: Callable[[], bool],
        order: Order,
        timeout_s: float,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._connect, self._is_gone, self._order = connect, is_gone, order
        self._timeout_s, self._sleep = timeout_s, sleep

    def unseen(self, run_name: str) -> list[Leftover]:
        return [Leftover(part=self.name, name=f"jobs of {run_name}")]

    def find(self, run_name: str) -> list[Leftover]:
        try:
            jobs = self._connect()
            found = {job: jobs.metadata(job) for job in jobs.unfinished() if is_of(job, run_name)}
        except ClusterUnreachable:
            if self._is_gone():
                return []
            raise
        return [
            Leftover(part=self.name, name=job, found="unfinished", keep=self._order.keeps(marks.get(FLOW_RUN, "")))
            for job, marks in found.items()
        ]

    def remove(self, run_name: str, left: Leftover) -> None:
        jobs = self._connect()
        jobs.stop(left.name)
        for _ in range(int(self._timeout_s) + 1):
            if jobs.state(left.name).is_final:
                return
            self._sleep(1.0)
        raise ClusterUnreachable(f"job {left.name} has not ended {self._timeout_s:g} s after it was stopped")


class Checkpoints:
    """The run's checkpoints on the shared file system: only a job on the cluster can see them. Exports stay."""

    name = "checkpoints"

    def __init__(self, connect: Callable[[], JobsClient], job: JobSettings, shared_dir: str, sinks: Sinks) -> None:
        self._connect, self._job, self._shared_dir, self._sinks = connect, job, shared_dir, sinks

    def unseen(self, run_name: str) -> list[Leftover]:
        return [Leftover(part=self.name, name=f"{self._shared_dir}/runs/{run_name}")]

    def find(self, run_name: str) -> list[Leftover]:
        try:
            stored = self._ask(run_name, remove=False)
        except ClusterUnreachable as error:
            remedy = "no cluster answers that mounts the folder: bring it up (cluster-up), then clean up again"
            raise ClusterUnreachable(f"{remedy} ({error})") from error
        sizes = [f"{PurePath(folder.path).name} {folder.size_bytes / 1e9:.3f} GB" for folder in stored]
        where = f"{self._shared_dir}/runs/{run_name}"
        return [Leftover(part=self.name, name=where, found=", ".join(sizes))] if sizes else []

    def remove(self, run_name: str, left: Leftover) -> None:
        self._ask(run_name, remove=True)

    def _ask(self, run_name: str, remove: bool) -> list[Stored]:
        order = CleanJob(shared_dir=self._shared_dir, run_name=run_name, remove=remove)
        jobs = self._connect()
        submission_id = submit_anew(
            jobs, f"{run_name}-clean", entrypoint(self._job, "rl.grpo.clean", order.model_dump_json())
        )
        story = followed_to_its_end(jobs, submission_id, self._sinks, limits_of(self._job))
        return list(story.stored.values())
