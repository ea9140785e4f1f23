"""End to end on real parts: Prefect, MLflow, Ray Jobs, SkyRL, vLLM, S3, Ray Serve LLM, on tiny settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests
from mlflow import MlflowClient

from rl.maze.eval_set import build_eval_set, write_eval_set
from tasks.clients.ray_token import token_headers
from tasks.local.services import Layout, LocalServices
from tests.services.canaries import FOR_RUN, kept_in, spellings
from tests.services.sockets import open_doors

pytestmark = pytest.mark.slow_s(600)

ROOT = Path(__file__).resolve().parents[3]
NUM_MAZES = 6
NOTE = "canary-note-that-is-kept"
"""No secret: what the search for secrets must find."""
OPEN_DOORS: set[tuple[str, str, int]] = set()
"""Where the first run waited for somebody who could be on another machine: program, address, port."""


def run_flow(env: dict[str, str], folder: Path, **changes: Any) -> subprocess.CompletedProcess[str]:
    eval_set = build_eval_set("maze_2d", 7, 9, NUM_MAZES)
    write_eval_set(eval_set, folder / "eval.json")
    settings = {
        "run_name": "rehearsal",
        "platform.report.reports_dir": folder / "reports",
        "platform.tracking.logs_dir": folder / "runs",
        "platform.train.shared_dir": folder / "shared",
        "platform.train.data.eval_manifest": folder / "eval.json",
        "platform.train.data.eval_sha256": eval_set.sha256,
        "platform.train.data.num_train_mazes": 8,
        "platform.judge.num_mazes": NUM_MAZES,
        "max_steps": 1,
        # Enough that hardly ever all rollouts of every maze end alike: then nothing would be learned or published.
        "mazes_per_step": 4,
        "platform.train.grpo.mini_batch_mazes": 2,
        "rollouts_per_maze": 8,
        "platform.train.grpo.micro_batch_size": 4,
        # Neither comes by its interval: the last step has both all the same.
        "eval_interval": 2,
        "export_interval": 3,
        **changes,
    }
    arguments = [f"{key}={value}" for key, value in settings.items()]
    command = [Path(sys.executable).with_name("maze-retrain"), "run", "local", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1200)


@pytest.fixture(scope="module")
def finished(services: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("run")
    local = LocalServices(Layout(ROOT, Path(services["PREFECT_HOME"]).parent), print)
    with open_doors([found.pid for found in local.running().values()]) as seen:
        done = run_flow({**services, **FOR_RUN}, folder, note=NOTE)
        OPEN_DOORS.update(seen)
    (folder / "stdout").write_text(done.stdout)
    (folder / "stderr").write_text(done.stderr)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return folder, done.stdout


def report_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "reports" / "latest.json").read_text())


def test_one_grpo_step_runs_from_prefect_to_the_report(finished: tuple[Path, str]) -> None:
    folder, printed = finished
    report = report_of(folder)
    assert [row["step"] for row in report["evals"]] == [0, 1]
    assert report["eval_set"]["num_mazes"] == NUM_MAZES
    assert report["judge"]["num_mazes"] == NUM_MAZES
    assert report["best"]["step"] == 1
    assert report == json.loads((folder / "reports" / "rehearsal.json").read_text())
    assert {"run_training", "publish_adapter", "ensure_endpoint", "prove_adapter"} <= set(report["timings_s"])
    assert f"solved of {NUM_MAZES}" in printed
    assert printed.count("curl -s ") == 2
    assert len(printed.splitlines()) <= 70
    assert "\x1b" not in printed
    assert (folder / "runs" / "rehearsal" / "rehearsal-train-1.log").stat().st_size > 1000
    for stage in ("run training", "publish adapter", "ensure endpoint", "prove adapter"):
        assert f"ok      {stage}" in printed
    shown = {path.name for path in (folder / "reports" / "rehearsal").iterdir() if path.suffix != ".gif"}
    assert shown == {"solve_rate.png", "training.png", "replays.png", "replays.html", "judge.html", "rollouts.html"}


def test_the_export_is_a_peft_adapter_of_the_language_model(finished: tuple[Path, str]) -> None:
    export = Path(report_of(finished[0])["best"]["export_path"])
    config = json.loads((export / "adapter_config.json").read_text())
    assert config["r"] == 32
    probe = (
        "import sys, torch; from peft import PeftModel; from transformers import Qwen3VLForConditionalGeneration as M\n"
        "base = M.from_pretrained(sys.argv[1]).eval(); ids = torch.arange(60, 90)[None]\n"
        "before = base(input_ids=ids).logits.detach().clone()\n"
        "model = PeftModel.from_pretrained(base, sys.argv[2]).eval()\n"
        "names = [n for n, _ in model.named_parameters() if 'lora_' in n]\n"
        "assert names and all('language_model' in n for n in names), names\n"
        "print(float((model(input_ids=ids).logits - before).abs().max()))"
    )
    python = ROOT / ".venv-train" / "bin" / "python"
    model = ROOT / "rl" / "models" / "tiny-qwen3-vl"
    done = subprocess.run([python, "-c", probe, model, export], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # Rounding moves this model's logits by about 1e-4 (test_length_groups.py), this step by some tenths.
    assert float(done.stdout) > 1e-2, "the adapter changes nothing"


def test_mlflow_holds_parent_and_child_finished_with_metrics_and_evaluations(
    services: dict[str, str], finished: tuple[Path, str]
) -> None:
    report = report_of(finished[0])
    client = MlflowClient(services["MLFLOW_TRACKING_URI"])
    parent, child = (client.get_run(report["mlflow"][key]) for key in ("parent_run_id", "child_run_id"))
    assert (parent.info.status, child.info.status) == ("FINISHED", "FINISHED")
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert parent.data.tags["ray.train"] == "rehearsal-train-1"
    solved = client.get_metric_history(child.info.run_id, "eval/solved")
    assert [point.step for point in solved] == [0, 1]
    assert {"policy/final_loss", "rollouts/dropped_trajectories", "timing/generate"} <= set(child.data.metrics)
    assert parent.data.params["train.lora.rank"] == "32"
    assert {item.path for item in client.list_artifacts(child.info.run_id, "evaluations")} == {
        "evaluations/step_000000.json",
        "evaluations/step_000001.json",
    }
    assert {item.path for item in client.list_artifacts(parent.info.run_id, "pictures")} == {
        "pictures/solve_rate.png",
        "pictures/replays.png",
        "pictures/training.png",
    }


def test_no_secret_of_the_environment_is_kept_anywhere(services: dict[str, str], finished: tuple[Path, str]) -> None:
    """In MLflow, Prefect, the store, artifacts, reports, logs, the shared folder; in what Ray tells of jobs."""
    token_file = Path(services["RAY_AUTH_TOKEN_PATH"])
    state, folder = Path(services["PREFECT_HOME"]).parent, finished[0]
    wanted = spellings({**FOR_RUN, "Ray's token": token_file.read_text()})
    found = [*kept_in(state, wanted), *kept_in(folder, wanted)]
    assert found == [("Ray's token", token_file)]
    kept = {path.relative_to(state).parts[0] for _, path in kept_in(state, {"note": NOTE.encode()})}
    assert {"mlflow", "prefect"} <= kept, "the search finds what is kept"
    for address, path in (
        (services["RAY_JOBS_ADDRESS"], "jobs/"),
        (services["SERVE_DASHBOARD"], "serve/applications/"),
    ):
        told = requests.get(f"{address}/api/{path}", headers=token_headers(address), timeout=30)
        assert told.ok
        assert [name for name, text in wanted.items() if text in told.content] == []


@pytest.mark.usefixtures("finished")
def test_while_a_run_trains_and_serves_its_services_stay_on_loopback() -> None:
    """What a run itself opens to other machines has no switch, and is told in docs/security.md."""
    programs = {program for program, _, _ in OPEN_DOORS}
    print(*sorted({(program, address) for program, address, _ in OPEN_DOORS}), sep="\n")
    services = {"gcs_server", "raylet", "ray::DashboardAgent", "ray::RuntimeEnvAgent", "ray::IDLE", "rclone"}
    assert programs & (services | {"mlflow", "prefect", "uvicorn"}) == set()


def test_a_second_run_of_that_name_finds_the_first_and_adds_nothing(
    services: dict[str, str], finished: tuple[Path, str]
) -> None:
    folder, _ = finished
    before = report_of(folder)
    done = run_flow(services, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    after = report_of(folder)
    assert after["mlflow"] == before["mlflow"]
    assert after["evals"] == before["evals"]
    client = MlflowClient(services["MLFLOW_TRACKING_URI"])
    history = client.get_metric_history(after["mlflow"]["child_run_id"], "policy/final_loss")
    assert [point.step for point in history] == [1]


def test_a_run_that_cannot_start_fails_in_the_words_of_its_checks(services: dict[str, str], tmp_path: Path) -> None:
    # That the ranks of this cluster add up is the first run's to tell.
    changes = {"platform.train.model_path": tmp_path, "platform.readiness.nodes.skip": ["all_reduce"]}
    done = run_flow(services, tmp_path, run_name="hopeless", **changes)
    assert done.returncode == 1
    failure = done.stdout.rpartition("\nstage   ")[2].splitlines()
    assert failure[0] == "check readiness"
    assert failure[1].startswith(
        f"cause   the base model can be loaded: model folder {tmp_path}: it has no config.json"
    )
    assert failure[2].startswith("do      "), "the other checks hold"
    assert "Traceback" not in done.stdout + done.stderr
    client = MlflowClient(services["MLFLOW_TRACKING_URI"])
    experiment = client.get_experiment_by_name("maze-retrain")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {run.info.status for run in runs if str(run.info.run_name).startswith("hopeless")} == {"FAILED"}
    assert not [run for run in runs if run.info.status == "RUNNING"]
