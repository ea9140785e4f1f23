"""A run's own job on a real Ray Jobs server: known by what it was asked, not waited for, stopped when it hangs."""

from __future__ import annotations

import asyncio
import shlex
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rl.grpo.settings import TrainJob
from tasks.cleanup.in_ray import Jobs
from tasks.cleanup.order import Order
from tasks.cleanup.parts import Leftover, clean
from tasks.cluster.settings import ClusterSettings
from tasks.cluster.wait import ensure_cluster
from tasks.errors import ClusterNotReady, OtherSettings, TrainingStalled
from tasks.jobs.follow import FollowLimits, follow_job
from tasks.jobs.news import JobNews
from tasks.jobs.ray_jobs import RayJobs, cluster_resources
from tasks.jobs.submit import submit_once
from tasks.local.services import NUM_LOGICAL_GPUS
from tasks.settings import JobSettings
from tasks.training.train import takes_up
from tests.recorded_run import recorded_order
from tests.recording import RecordingPage, recording
from tests.services.loopback import free_port, wait_until

pytestmark = pytest.mark.slow_s(50)

ROOT = Path(__file__).resolve().parents[3]
PYTHON = str(ROOT / ".venv-train/bin/python")
HOLDS_GPUS = f"""
import ray, time
ray.init()
@ray.remote(num_gpus={NUM_LOGICAL_GPUS})
class Trainer:
    def is_there(self): return True
trainer = Trainer.remote()
ray.get(trainer.is_there.remote())
time.sleep(600)
"""
IDLE_S, LIMIT_S = 3.0, 12.0
"""Ray looks for news of a log once a second."""
HANGS = """
import ray, time
from rl.events import EventLog, Metrics
from rl.output import clean_output, tell_stacks_at_stop
clean_output()
ray.init(logging_level="ERROR", log_to_driver=False)
tell_stacks_at_stop()
@ray.remote
def takes_for_ever(): time.sleep(600)
task = takes_for_ever.remote()
time.sleep(3)
print("hello", flush=True)
EventLog().emit(Metrics(step=3, values={}))
def waits_for_ever(): ray.get(task)
waits_for_ever()
"""


def asked(code: str, order: TrainJob) -> str:
    """The order is the last argument, as in every job of a run."""
    return shlex.join([PYTHON, "-c", code, order.model_dump_json()])


def trained_otherwise(order: TrainJob) -> TrainJob:
    document = order.model_dump()
    document["train"]["grpo"]["learning_rate"] *= 2
    return TrainJob.model_validate(document)


@pytest.fixture
def training(services: dict[str, str]) -> Iterator[RayJobs]:
    """A cluster whose GPUs are all held by the training job of run ``own``."""
    jobs = RayJobs(services["RAY_JOBS_ADDRESS"])
    wait_until(lambda: cluster_resources(services["RAY_JOBS_ADDRESS"])["gpus_free"] == NUM_LOGICAL_GPUS, 60)
    submission_id = submit_once(jobs, "own-train", asked(HOLDS_GPUS, recorded_order()), takes_up)
    wait_until(lambda: cluster_resources(services["RAY_JOBS_ADDRESS"])["gpus_free"] == 0, 60)
    yield jobs
    jobs.stop(submission_id)
    wait_until(lambda: jobs.state(submission_id).is_final, 60)


def test_a_run_s_own_job_is_found_by_what_it_was_asked_and_waits_for_no_gpus(
    training: RayJobs, services: dict[str, str]
) -> None:
    settings = ClusterSettings(
        jobs_address=services["RAY_JOBS_ADDRESS"], num_gpus=NUM_LOGICAL_GPUS, timeout_s=2, poll_s=0.5
    )
    job, context = JobSettings(project_dir="/p", python=PYTHON), recording()[0]
    assert ensure_cluster.fn(replace(context, run_name="own"), settings, job).own_job == "own-train-1"
    with pytest.raises(ClusterNotReady, match=f"after 2 s 0 of {NUM_LOGICAL_GPUS} GPUs are free"):
        ensure_cluster.fn(replace(context, run_name="ow"), settings, job)
    assert submit_once(training, "own-train", asked(HOLDS_GPUS, recorded_order()), takes_up) == "own-train-1"
    with pytest.raises(OtherSettings, match=r"learning_rate"):
        submit_once(training, "own-train", asked(HOLDS_GPUS, trained_otherwise(recorded_order())), takes_up)
    assert training.state("own-train-1").status == "RUNNING"
    assert [name for name in training.submission_ids() if name.startswith("own-train")] == ["own-train-1"]


class IdleProxy:
    """Closes whatever was silent for ``IDLE_S``, as load balancers do after a minute."""

    def __init__(self, behind: str) -> None:
        self._behind, self.port = int(behind.rpartition(":")[2]), free_port()
        self.num_tails = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._connect, "127.0.0.1", self.port), self._loop
        ).result()
        return f"http://127.0.0.1:{self.port}"

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _connect(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        server, ask = await asyncio.open_connection("127.0.0.1", self._behind)
        directions = [self._pass_on(client, ask), self._pass_on(server, answer)]
        await asyncio.wait(map(asyncio.ensure_future, directions), return_when=asyncio.FIRST_COMPLETED)
        for writer in (ask, answer):
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # The request waits for its answer, the answer for news: what counts is that neither moves.
            while data := await asyncio.wait_for(reader.read(65536), IDLE_S):
                self.num_tails += b"/logs/tail" in data
                writer.write(data)
                await writer.drain()
        except (TimeoutError, ConnectionError):
            return


def test_a_hung_job_behind_a_proxy_that_closes_idle_connections_is_stopped_at_the_limit(
    services: dict[str, str],
) -> None:
    limits, proxy, page = (
        FollowLimits(stall_timeout_s=LIMIT_S, reconnect_s=0.2),
        IdleProxy(services["RAY_JOBS_ADDRESS"]),
        [],
    )
    jobs = RayJobs(services["RAY_JOBS_ADDRESS"])
    submission_id = submit_once(jobs, "hung-train", f"cd {ROOT} && exec {shlex.join([PYTHON, '-c', HANGS])}")
    wait_until(lambda: "hello" in jobs._ask(lambda client: client.get_job_logs(submission_id)), 60)
    shown, kept = RecordingPage(page), dict[str, str]()

    class News(JobNews):
        def wrote(self, name: str, text: str) -> None:
            kept[name] = text

    with proxy as address:
        began_s = time.monotonic()
        with pytest.raises(TrainingStalled, match="made no progress for 12 s"):
            follow_job(RayJobs(address), submission_id, News(replace(recording()[0], page=shown)), limits)
        took_s = time.monotonic() - began_s
    wait_until(lambda: jobs.state(submission_id).status == "STOPPED", 60)
    assert LIMIT_S <= took_s < 3 * LIMIT_S
    assert 2 <= proxy.num_tails <= 7, "the pauses between connections grow"
    assert shown.said.count("hello") == 1
    # What it did is kept: the task that runs, and the stack of who waits for it.
    assert "name takes_for_ever" in kept["under_way.txt"]
    assert [line for line in shown.said if "in waits_for_ever" in line]


def test_a_jobs_api_that_does_not_answer_is_not_an_empty_one() -> None:
    def silent() -> RayJobs:
        return RayJobs(f"http://127.0.0.1:{free_port()}", sleep=lambda seconds: None)

    left: list[Leftover] = []
    part = Jobs(silent, lambda: False, Order(), timeout_s=3)
    with pytest.raises(ExceptionGroup, match="clean-up of r is not complete; run it again"):
        clean([part], ["jobs"], "r", dry_run=True, say=lambda text: None, left=left)
    (thing,) = left
    assert (thing.name, thing.found) == ("jobs of r", "not looked at")
