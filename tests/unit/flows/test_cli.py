"""The commands: what is refused before anything starts, how failures read, what the exit code says. Nothing runs."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import flows.cli.command
import flows.cli.main
import flows.cli.run
import flows.cli.services
import flows.deployments
from flows.cli.failure import failure_of
from flows.cli.main import app
from flows.cli.result import evaluations, gate_sentence, show
from flows.cli.screen import Screen
from tasks.errors import ClusterNotReady, ClusterUnreachable, TrainingJobFailed
from tasks.watch import Began, Ended, Following, Opened, Table, teller

ADDRESSES = {
    "PREFECT_API_URL": "http://127.0.0.1:1/api",
    "MLFLOW_TRACKING_URI": "http://127.0.0.1:2",
    "RAY_JOBS_ADDRESS": "http://127.0.0.1:3",
    "SERVE_DASHBOARD": "http://127.0.0.1:4",
    "SERVE_LISTEN": "127.0.0.1:5",
    "SERVE_URL": "http://127.0.0.1:5",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:6",
}
REPORT: dict[str, Any] = {
    "run_name": "r",
    "eval_set": {"num_mazes": 64, "ceiling": 64},
    "evals": [
        {"step": 0, "solved": 33, "unparsable_replies": 0, "mean_turns": 14.41},
        {"step": 4, "solved": 49, "unparsable_replies": 2, "mean_turns": 12.1},
    ],
    "base": {"solved": 33},
    "best": {"step": 4, "solved": 49},
    "mlflow": {"url": "http://mlflow/#/runs/7"},
    "proof": {"holds": True, "failures": [], "endpoint_solved": 49, "training_solved": 49},
    "judge": {"num_mazes": 128, "solved": {"candidate": 91, "base": 61}, "recalled": []},
    "gate": {
        "decision": "promote",
        "wins": 33,
        "losses": 3,
        "p_value": 0.00003,
        "reason": "33 judge mazes won and 3 lost against the base, p=2e-07; there was no champion to beat",
        "champion": "r-step-4",
    },
    "served": {"url": "http://127.0.0.1:5", "base_model_id": "tiny", "adapter_model_id": "tiny:r-step-4"},
    "wall_s": 886.0,
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that nobody asks, and none of this machine looked for; what a command sets goes with its test."""
    monkeypatch.setattr(flows.cli.services, "_running", dict)
    quiet = {"PROJECT_DIR": str(Path.cwd()), "PREFECT_HOME": "unused", **flows.cli.command.KEEP_QUIET}
    for name, value in {**ADDRESSES, **quiet}.items():
        monkeypatch.setenv(name, value)


def typed(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})
    return done.exit_code, done.output


class Run:
    """What `run_deployment` is handed, in place of a run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> None:
        self.calls: list[tuple[str, list[str], bool]] = []

        def run(name: str, arguments: list[str], screen: Screen, is_verbose: bool) -> int:
            self.calls.append((name, arguments, is_verbose))
            return code

        monkeypatch.setattr(flows.cli.run, "run_deployment", run)


@pytest.mark.parametrize(
    ("arguments", "deployment", "knobs"),
    [
        (["run"], "retrain/local", []),
        (["run", "max_steps=4"], "retrain/local", ["max_steps=4"]),
        (["run", "local-long", "a.b=1", "c=2"], "retrain/local-long", ["a.b=1", "c=2"]),
        (["run", "base-model/local", "model.seed=1"], "base-model/local", ["model.seed=1"]),
        (["plan"], "plan/hyperpod", []),
        (["rollback"], "rollback/local", []),
        (["cleanup", "r"], "cleanup/local", ["run_name=r", "dry_run=true"]),
        (["cleanup", "r", "--remove"], "cleanup/local", ["run_name=r", "dry_run=false"]),
    ],
)
def test_a_command_runs_its_deployment(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], deployment: str, knobs: list[str]
) -> None:
    run = Run(monkeypatch)
    assert typed(*arguments)[0] == 0
    assert run.calls == [(deployment, knobs, False)]


def test_the_exit_code_is_the_run_s_and_verbose_comes_by_option_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, code=130)
    assert typed("run", "--verbose")[0] == 130
    monkeypatch.setenv("VERBOSE", "1")
    typed("run")
    assert [verbose for _, _, verbose in run.calls] == [True, True]


@pytest.mark.parametrize(
    ("knob", "said"),
    [
        ("max_steps=0", "max_steps: 0 was given, at least 1 is wanted"),
        ("learning_rate=fast", "learning_rate: 'fast' was given, a number is wanted"),
        ("rollout_per_maze=4", "rollout_per_maze: there is no such knob; was rollouts_per_maze meant?"),
        ("platform.serve.timeout_s=soon", "platform.serve.timeout_s: 'soon' was given, a number is wanted"),
        ("platform.serve.timeout=1", "platform.serve.timeout: there is no such setting; was timeout_s meant?"),
        ("train.grpo.max_steps=4", "train.grpo.max_steps is a knob now: max_steps=...; the knobs of retrain/local are"),
        ("run_name=Not a name", "run_name: "),
        ("no_such_thing=1", "there is no no_such_thing; the knobs of retrain/local are run_name, max_steps"),
        ("max_steps", "'max_steps' is no key=value; name a knob and its value, such as max_steps=4"),
    ],
)
def test_a_bad_knob_is_one_line_in_plain_words_and_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, knob: str, said: str
) -> None:
    monkeypatch.setattr("prefect.flows.Flow.__call__", lambda *args, **kwargs: pytest.fail("a flow was started"))
    code, text = typed("run", "local", knob) if "=" in knob else typed("run", "local", "seed=1", knob)
    assert code == 2
    assert f"error: {said}" in text
    assert "Traceback" not in text
    assert "pydantic" not in text


def test_an_unknown_profile_is_answered_with_those_that_there_are() -> None:
    assert typed("run", "moon") == (
        2,
        "error: retrain has no profile moon, it has hyperpod, kuberay, local, local-long\n",
    )
    assert typed("run", "locl")[1].endswith("it has hyperpod, kuberay, local, local-long; was local meant?\n")
    assert "error: there is no retune/local; there are base-model/local" in typed("run", "retune/local")[1]


def test_services_that_do_not_run_are_named_with_the_command_that_starts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "RAY_JOBS_ADDRESS"):
        monkeypatch.delenv(name)
    code, text = typed("run")
    assert code == 3
    assert "error: the Ray cluster that trains, MLflow do not run here; start them with `maze-retrain up`" in text


def test_help_is_quick_groups_commands_by_purpose_and_names_the_exit_codes() -> None:
    code, text = typed("--help")
    assert code == 0
    for wanted in (
        "Train and decide",
        "Look",
        "Services",
        "A first run",
        "Exit codes",
        "130 stopped by Ctrl-C",
        "143 by SIGTERM",
    ):
        assert wanted in text
    command = [sys.executable, "-c", "import sys, flows.cli.main; print(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not {"prefect", "mlflow", "ray", "boto3", "pandas", "matplotlib"} & set(loaded)


def test_completion_is_offered_for_the_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from flows.cli.main import main; main()"],
        env={
            **os.environ,
            "_MAZE_RETRAIN_COMPLETE": "complete_bash",
            "COMP_WORDS": "maze-retrain ch",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
    )
    # `python -c` has no program name to complete for: what counts is that nothing heavy is asked and nothing fails.
    assert "Traceback" not in done.stderr


def screen(written: io.StringIO) -> Screen:
    return Screen(Console(file=written, width=100), {"PREFECT_API_URL": "http://prefect/api"}, is_live=False)


def run_of(monkeypatch: pytest.MonkeyPatch, flow: Any) -> tuple[int, str]:
    """The flow under the screen, as `maze-retrain run` shows it."""
    monkeypatch.setattr(flows.cli.run, "prepared", lambda name, arguments: (flow, {}))
    written = io.StringIO()
    code = flows.cli.run.run_deployment("retrain/local", [], screen(written), False)
    return code, written.getvalue()


def test_a_run_that_fails_ends_with_stage_cause_remedy_and_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def flow() -> None:
        tell = teller()
        tell(Opened("r", "id-1", ""))
        tell(Began("run_training"))
        tell(Following("r-train-1", "/runs/r/r-train-1.log"))
        tell(Ended("run_training", "", "failed", "", 3.0))
        tell(Began("clean_up"))
        tell(Ended("clean_up", "", "completed", "nothing is left", 1.0))
        raise TrainingJobFailed("job r-train-1 is FAILED at step 1; it reported no fault\nits last lines:\na\nb")

    code, text = run_of(monkeypatch, flow)
    assert code == 1
    assert text.splitlines()[-4:] == [
        "stage   run training",
        "cause   job r-train-1 is FAILED at step 1; it reported no fault",
        "do      read the end of the job's log, then run again under the same run_name: it goes on from its last "
        "checkpoint",
        "log     /runs/r/r-train-1.log",
    ]
    assert "Traceback" not in text


def test_a_clean_up_that_failed_still_shows_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def flow() -> None:
        teller()(
            Table("left", [{"part": "jobs", "name": "r-train-1", "found": "RUNNING", "usd_per_h": 0.0, "keep": ""}])
        )
        raise ClusterUnreachable("the Ray Jobs API does not answer; bring the cluster up")

    code, text = run_of(monkeypatch, flow)
    assert code == 1
    assert "r-train-1" in text
    assert text.splitlines()[-1] == "do      bring the cluster up"


def test_ctrl_c_says_what_it_stops_and_that_it_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def flow() -> None:
        teller()(Opened("r", "", ""))
        teller()(Began("run_training"))
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    code, text = run_of(monkeypatch, flow)
    assert code == 130
    assert "Ctrl-C  stopping run training, then cleaning up; once more leaves everything as it is" in text
    assert text.splitlines()[-1] == "stopped r has stopped"


def test_a_second_ctrl_c_says_where_to_look_for_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def flow() -> None:
        tell = teller()
        tell(Opened("r", "", ""))
        tell(Began("run_training"))
        tell(Following("r-train-1", ""))
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        finally:
            tell(Began("clean_up"))
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)

    code, text = run_of(monkeypatch, flow)
    assert code == 130
    assert "not waiting: Ray job r-train-1 may still run; `maze-retrain cleanup r` shows what is left" in text


def test_checks_that_do_not_hold_are_a_line_each_and_the_first_one_says_what_to_do() -> None:
    error = ClusterNotReady(
        "not everything is there that this run needs:\n- the disk: 1 GB free; free some\n- MLflow: no answer; start it"
    )
    failure = failure_of(error, "check readiness", "")
    assert failure.lines() == [
        "stage   check readiness",
        "cause   the disk: 1 GB free",
        "        MLflow: no answer; start it",
        "do      free some",
    ]


def test_an_error_that_is_none_of_ours_is_named_by_its_kind() -> None:
    lines = failure_of(KeyError("x"), "publish adapter", "http://prefect").lines()
    assert lines[1] == "cause   KeyError: 'x'"
    assert "VERBOSE=1" in lines[2]


def plain(renderable: Any, width: int = 100) -> str:
    written = io.StringIO()
    Console(file=written, width=width).print(renderable)
    return written.getvalue()


def test_the_result_has_the_evaluations_the_gate_in_a_sentence_and_where_to_look() -> None:
    written = io.StringIO()
    show(Console(file=written, width=60), REPORT, "http://prefect/runs/flow-run/1", "http://ray")
    text = written.getvalue()
    assert [line.split()[0] for line in text.splitlines()[-8:]] == [
        *("Prefect", "MLflow", "all", "Ray", "endpoint", "took", "curl", "curl")
    ]
    assert "solved of 64" in text
    assert "published" in text
    assert "the base" in text
    for address in ("http://prefect/runs/flow-run/1", "http://mlflow/#/runs/7", "http://ray", "http://127.0.0.1:5/v1"):
        assert address in text
    assert "14 min 46 s" in text
    assert len(plain(evaluations(REPORT)).splitlines()) <= 6


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {},
            "Step 4 is promoted: it is champion now. Judge 91 of 128, base 61: mazes that chose no step. 33 judge "
            "mazes won and 3 lost against the base, p=2e-07; there was no champion to beat. Besides: 49 of 64 mazes "
            "through the endpoint, 49 in training.",
        ),
        (
            {"decision": "keep", "reason": "1 judge mazes won and 1 lost against the champion c; more was wanted"},
            "Step 4 is kept back: the champion stays. Judge 91 of 128, base 61: mazes that chose no step. 1 judge "
            "mazes won and 1 lost against the champion c; more was wanted. Besides: 49 of 64 mazes through the "
            "endpoint, 49 in training.",
        ),
    ],
)
def test_the_gate_s_decision_is_said_with_the_judge_s_figures_and_why(changes: dict[str, str], sentence: str) -> None:
    assert gate_sentence({**REPORT, "gate": {**REPORT["gate"], **changes}}) == sentence


def test_a_proof_that_fails_is_said_in_place_of_the_gate_s_decision() -> None:
    proof = {**REPORT["proof"], "holds": False, "failures": ["other weights are served"]}
    assert gate_sentence({**REPORT, "proof": proof}).startswith("Not proven, so not promoted: other weights are served")


@pytest.mark.parametrize("code", [0, 1])
def test_doctor_s_exit_code_says_whether_all_checks_hold(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    asked: list[str] = []
    monkeypatch.setattr("flows.cli.doctor.examine", lambda console, profile: (asked.append(profile), code)[1])
    assert typed("doctor")[0] == code
    assert typed("doctor", "kuberay")[0] == code
    assert asked == ["local", "kuberay"]


def test_doctor_refuses_a_profile_that_nobody_has() -> None:
    assert typed("doctor", "kuberey")[0] == 2
