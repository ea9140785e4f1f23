"""Everything outside of a retrain run, small: a cluster whose jobs are done when they are read, an endpoint that walks
two mazes (small_models.py), S3 (moto), MLflow (small_tracking.py). What each job leaves behind is what the real
one leaves.

Rules and refusals: Ray's JobSubmissionClient refuses a used id (dashboard/modules/job/job_manager.py), Serve's REST API
answers as in tests/unit/release/test_serve_rest.py, an OpenAI-compatible server names who answered.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from rl.events import Checked, Evaluated, Event, Metrics, Probed, Resumed, Saved
from rl.grpo.settings import TrainJob
from rl.proof.questions import probe_conversations
from rl.proof.settings import ProbeJob
from rl.readiness.settings import CHECKS
from serving.publish import PublishJob, publish
from serving.store_check import CHECK as STORE_CHECK
from tests.every_cut import elsewhere
from tests.unit.flows.small_models import LOGPROBS, Player, export


@dataclass
class Job:
    """A Ray job: what it has to say is known when it is submitted, and it is over when somebody has heard it."""

    entrypoint: str
    metadata: dict[str, str]
    log: str
    status: str = "RUNNING"


@dataclass
class World:
    """What is outside, from nothing."""

    folder: Path
    player: Player
    s3: Any
    jobs: dict[str, Job] = field(default_factory=dict)
    application: dict[str, Any] | None = None
    base_id: str = "tiny-qwen3-vl"
    published: set[str] = field(default_factory=set)

    def work(self, entrypoint: str) -> str:
        """What the command does to the world, and its log."""
        *_, module, document = shlex.split(entrypoint.replace("; }", ""))
        with elsewhere():
            if "rl.readiness.job" in entrypoint:
                names = [name for name, _ in CHECKS.values()]
                events: list[Event] = [Checked(name=name, holds=True, found="ok") for name in (*names, STORE_CHECK)]
            elif module == "rl.grpo.job":
                events = self._train(TrainJob.model_validate_json(document))
            elif module == "serving.publish":
                self.published.add(publish(PublishJob.model_validate_json(document), self.s3).adapter_name)
                events = []
            elif module == "rl.proof.job":
                events = self._probe(ProbeJob.model_validate_json(document))
            else:
                raise ValueError(f"this world has no job {module}")
        return "".join(f"@event {event.model_dump_json()}\n" for event in events)

    def _train(self, job: TrainJob) -> list[Event]:
        reply = job.train.grpo.max_reply_tokens
        last, path = job.train.grpo.max_steps, self.folder / "exports" / job.run_name
        return [
            Resumed(attempt=1, step=0, path=""),
            Evaluated(report=self.player.report("base", 0, job.train.data, reply)),
            *(Metrics(step=step, values={"loss": 1 / step}) for step in range(1, last + 1)),
            Evaluated(report=self.player.report("adapter", last, job.train.data, reply)),
            Saved(kind="checkpoint", step=last, path=str(self.folder), sha256={}),
            Saved(kind="export", step=last, path=str(path), sha256=export(path)),
        ]

    def _probe(self, job: ProbeJob) -> list[Event]:
        said = [self.player.reply("adapter", messages) for messages in probe_conversations(job.questions)]
        return [Probed(number=number, text=text, logprobs=(LOGPROBS["adapter"],)) for number, text in enumerate(said)]


class JobsOf:
    """Ray's JobSubmissionClient for a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    def submit_job(self, submission_id: str, entrypoint: str, metadata: Mapping[str, str], **_: Any) -> str:
        if submission_id in self.world.jobs:
            raise RuntimeError(f"Request failed with status code 500: Job {submission_id} already exists.")
        self.world.jobs[submission_id] = Job(entrypoint, dict(metadata), self.world.work(entrypoint))
        return submission_id

    def list_jobs(self) -> list[Any]:
        return [self._info(name) for name in self.world.jobs]

    def get_job_info(self, submission_id: str) -> Any:
        if submission_id not in self.world.jobs:
            raise RuntimeError(f"Request failed with status code 404: Job {submission_id} does not exist")
        return self._info(submission_id)

    def _info(self, name: str) -> Any:
        job = self.world.jobs[name]
        status = SimpleNamespace(value=job.status)
        return SimpleNamespace(
            submission_id=name, status=status, message="", entrypoint=job.entrypoint, metadata=job.metadata
        )

    def get_job_logs(self, submission_id: str) -> str:
        return self.world.jobs[submission_id].log

    async def tail_job_logs(self, submission_id: str) -> AsyncIterator[str]:
        job = self.world.jobs[submission_id]
        yield job.log
        if job.status == "RUNNING":
            job.status = "SUCCEEDED"

    def stop_job(self, submission_id: str) -> bool:
        self.world.jobs[submission_id].status = "STOPPED"
        return True


class Here:
    """The world that the loopback server speaks for now."""

    world: World


@contextmanager
def loopback(here: Here) -> Iterator[str]:
    """The dashboards of both clusters and the endpoint at one address, which is yielded."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        """Head and body leave together: apart, the second waits 40 ms for the first one's acknowledgement."""

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def _answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with elsewhere():
                status, body = answer(here.world, self.command, self.path, json.loads(sent) if sent else None)
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815 - http.server's names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(world: World, method: str, path: str, sent: Any) -> tuple[int, Any]:
    """One request to whatever is outside."""
    if path == "/api/version":
        return 200, {"version": "4", "ray_version": "2.57.0", "ray_commit": "", "session_name": "s"}
    if path == "/api/cluster_status":
        return 200, {"data": {"clusterStatus": {"loadMetricsReport": {"usage": {"GPU": [0.0, 2.0]}}}}}
    if path == "/api/serve/applications/":
        if method == "PUT":
            world.application = sent
            return 200, {}
        return 200, _serve_details(world.application)
    if path == "/v1/models":
        return 200, {"data": [{"id": world.base_id}]}
    if path.startswith("/v1/models/"):
        name = unquote(path.rpartition("/")[2])
        return (200, {"id": name}) if _who(world, name) else (404, {"error": "no such model"})
    who = _who(world, sent["model"])
    if not who:
        return 404, {"error": f"{sent['model']} does not exist"}
    text = world.player.reply(who, sent["messages"])
    token = {"token": text, "logprob": LOGPROBS[who]}
    choice = {"message": {"content": text}, "logprobs": {"content": [token]} if sent["logprobs"] else None}
    return 200, {"model": sent["model"], "choices": [choice]}


def _who(world: World, model: str) -> str:
    """Whom a name stands for: an adapter is there when it was published."""
    base, _, adapter = model.partition(":")
    if base != world.base_id or not world.application:
        return ""
    if not adapter:
        return "base"
    return "adapter" if adapter in world.published else ""


def _serve_details(document: dict[str, Any] | None) -> dict[str, Any]:
    if document is None:
        return {"applications": {}}
    (wanted,) = document["applications"]
    running = {"status": "RUNNING", "deployed_app_config": wanted, "last_deployed_time_s": 1, "deployments": {}}
    return {"http_options": document["http_options"], "applications": {wanted["name"]: running}}
