"""The whole retrain flow, killed at every outside call and run again under its name: as if nothing had happened."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from mlflow import MlflowClient
from prefect import Task

import flows.retrain
import tasks.cleanup.clean_up
import tasks.clients.mlflow_check
import tasks.evidence.report
import tasks.jobs.ray_jobs
import tasks.release.aliases
from flows.deployments import load_deployment, load_settings
from rl.maze.run_mazes import draw_judge_mazes
from tasks.evidence.exhibits import Exhibits
from tasks.evidence.tracking import _ended_by_its_verdict
from tasks.run import RunContext
from tasks.settings import dotted
from tests.every_cut import every_cut, outside
from tests.moto_server import moto_server
from tests.recording import RecordingPage
from tests.unit.flows.small_models import Player, base_model, two_mazes
from tests.unit.flows.small_tracking import Runs, emptied, registry
from tests.unit.flows.small_world import Here, JobsOf, World, loopback

pytestmark = pytest.mark.slow_s(95)
RUN = "cut"


@dataclass(frozen=True)
class Ground:
    """What all trials stand on."""

    folder: Path
    database: Path
    s3: Any
    player: Player
    parameters: dict[str, Any]
    here: Here


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder, here = tmp_path_factory.mktemp("world"), Here()
    with pytest.MonkeyPatch.context() as patch, loopback(here) as address, moto_server() as s3_url:
        patch.setenv("AWS_ENDPOINT_URL", s3_url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "k")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        for name, value in {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "PROJECT_DIR": str(Path.cwd()),
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
            "RAY_JOBS_ADDRESS": f"http://{address}",
            "SERVE_DASHBOARD": f"http://{address}",
            "SERVE_URL": f"http://{address}",
            # Nobody listens there: a world starts without Serve.
            "SERVE_LISTEN": "127.0.0.1:9",
        }.items():
            patch.setenv(name, value)
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="models")
        _one_registry_client(patch, f"sqlite:///{folder / 'mlflow.db'}")
        patch.setattr(tasks.jobs.ray_jobs, "JobSubmissionClient", lambda address, headers: outside(JobsOf(here.world)))
        _plain_stages(patch)
        parameters = _small_run(folder)
        data = load_settings("retrain/local", _overrides(folder)).train.data
        player = Player(two_mazes(folder)[1], data.maze, data.max_turns)
        player.learn(draw_judge_mazes(data, RUN, 2))
        yield Ground(folder, folder / "mlflow.db", s3, player, parameters, here)


def _one_registry_client(patch: pytest.MonkeyPatch, uri: str) -> None:
    """Making one costs MLflow more than all that is asked of it here; it keeps nothing of what it was asked."""
    client = MlflowClient(uri)
    client.search_registered_models()
    for module in (tasks.release.aliases, tasks.clients.mlflow_check):
        patch.setattr(module, "mlflow_client", lambda tracking_uri: client)


def _plain_stages(patch: pytest.MonkeyPatch) -> None:
    """The stages themselves, without Prefect's engine around them; no pictures, which nothing outside sees."""
    for module in (flows.retrain, tasks.cleanup.clean_up):
        for name, found in vars(module).items():
            if isinstance(found, Task):
                patch.setattr(module, name, found.fn)
    pages = {name: Path(f"{name}.html") for name in ("replays", "judge", "rollouts")}
    nothing = Exhibits(pictures={}, walks=(), pages=pages)
    patch.setattr(tasks.evidence.report, "make_exhibits", lambda *about: nothing)


def _overrides(folder: Path) -> dict[str, Any]:
    manifest, eval_set = two_mazes(folder)
    base = folder / "base"
    return {
        "run_name": RUN,
        "max_steps": 2,
        "eval_interval": 2,
        "export_interval": 2,
        "mazes_per_step": 4,
        "platform.train.data.num_train_mazes": 8,
        "platform.train.data.eval_manifest": str(manifest),
        "platform.train.data.eval_sha256": eval_set.sha256,
        "platform.train.model_path": str(base),
        "platform.train.shared_dir": str(folder / "shared"),
        "platform.report.reports_dir": str(folder / "reports"),
        "platform.play.num_concurrent": 1,
        "platform.proof.num_probes": 2,
        "platform.judge.num_mazes": 2,
        "platform.gate.max_p_value": 0.6,
        "platform.cleanup.remove": ["jobs"],
    }


def _small_run(folder: Path) -> dict[str, Any]:
    base_model(folder / "base")
    return load_deployment("retrain/local", _overrides(folder))[1]


class Retraining:
    """The flow in a world of its own."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.runs, self.flow_runs = ground, Runs(), 0
        self.world = World(ground.folder, ground.player, ground.s3)
        ground.here.world = self.world
        for found in ground.s3.list_objects_v2(Bucket="models").get("Contents", []):
            ground.s3.delete_object(Bucket="models", Key=found["Key"])
        emptied(ground.database)

    def run(self) -> None:
        self.flow_runs += 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flows.retrain, "tracked_run", self._tracked_run)
            flows.retrain.retrain.fn(**self.ground.parameters)

    @contextmanager
    def _tracked_run(
        self, settings: Any, run_name: str, params: Mapping[str, Any], **shown: Any
    ) -> Iterator[RunContext]:
        """What the log is told lies on disk at once (tasks/evidence/outbox.py); a process may end between any two."""
        run: Any = outside(self.runs)
        run.params(dotted(params))
        run.begin()
        with _ended_by_its_verdict(run):
            yield RunContext(run_name, run, RecordingPage([]), flow_run_id=f"flow-run-{self.flow_runs}")

    def state(self) -> dict[str, Any]:
        """All that outlives the run, but what says when and how it was looked at."""
        pages = self.ground.s3.list_objects_v2(Bucket="models").get("Contents", [])
        objects = {found["Key"]: found["ETag"] for found in pages}
        pointed = [key for key in objects if key.endswith(".champion.json")]
        for key in pointed:
            champion = json.loads(self.ground.s3.get_object(Bucket="models", Key=key)["Body"].read())
            objects[key] = {name: value for name, value in champion.items() if name != "change"}
        return {
            "jobs": {name: job.status for name, job in self.world.jobs.items() if "-ready-" not in name},
            "objects": objects,
            "registry": registry(self.ground.database),
            "application": self.world.application,
            "log": _kept(self.runs),
            "children": {name: _kept(child) for name, child in self.runs.children.items()},
        }


def _kept(runs: Runs) -> dict[str, Any]:
    texts = {name: text for name, text in runs.kept["texts"].items() if name != "readiness.json"}
    if "report.json" in texts:
        report = json.loads(texts["report.json"])
        # What an earlier attempt kept is recalled, which changes nothing of what was found.
        report["judge"].pop("recalled")
        texts["report.json"] = {key: value for key, value in report.items() if key not in ("timings_s", "wall_s")}
    return {**runs.kept, "texts": texts}


def nothing_goes_on(trial: Retraining) -> None:
    """Whatever was cut: a run that ended well leaves no job, and no probe of a readiness check."""
    if trial.runs.kept["tags"].get("status") != "FINISHED":
        return
    assert not [name for name, job in trial.world.jobs.items() if job.status == "RUNNING"]
    assert not [name for name in registry(trial.ground.database)["models"] if "probe" in name]


def test_a_run_that_was_killed_anywhere_ends_as_if_it_had_not_been(make: Callable[[], Retraining]) -> None:
    """Killed only, and before each call: the parts are cut in both ways, on both sides, in tests of their own."""
    cuts = every_cut(make, always=nothing_goes_on, ways=("killed",), sides=("before",), reads=False)
    assert len(cuts.tried) > 50
    trial = make()
    trial.run()
    state = trial.state()
    assert state["jobs"] == dict.fromkeys(("cut-train-1", "cut-publish-2-1", "cut-probe-2-1"), "SUCCEEDED")
    assert state["registry"]["aliases"] == [("tiny-qwen3-vl-adapters", "champion", 1)]
    assert (state["log"]["tags"]["status"], list(state["children"])) == ("FINISHED", ["training-1"])


@pytest.fixture
def make(ground: Ground) -> Callable[[], Retraining]:
    return lambda: Retraining(ground)
