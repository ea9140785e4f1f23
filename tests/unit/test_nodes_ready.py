"""The checks on the nodes by their pure parts: what looks mean together, how the job is submitted, how it may die."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rl import ready_checks
from rl.events import PREFIX, Checked, EventLog, parse_line
from rl.model_check import missing_weights
from rl.node import DRIVER_FILE, Seen, exchange, look, seen_within, versions
from rl.ready import Verdicts
from rl.ready_checks import GpuNode, Unready
from rl.ready_settings import CHECKS, NodeReadiness, NodeWants, ReadyJob
from serving import store_check
from serving.store_check import StoreCheck
from tasks.adapters import ClusterUnreachable, JobState
from tasks.nodes_ready import ENDED, check_nodes, command, submit_anew
from tasks.settings import JobSettings

JOB = JobSettings(project_dir="/p", python="python", reconnect_s=0.01)
STORE = StoreCheck(adapters_uri="s3://models/a", name="r-job", timeout_s=5)
ORDER = ReadyJob(
    run_name="r",
    checks=NodeReadiness(),
    device="cpu",
    num_gpus=6,
    num_policy_nodes=3,
    num_gpus_per_node=2,
    env={},
    shared_dir="/shared",
    min_free_disk_gb=1,
    model_path="/m",
    tracking_uri="http://mlflow",
)


def gpu_nodes(*free: float) -> list[GpuNode]:
    return [GpuNode(node_id=name, label=name, num_gpus=2, num_free=n) for name, n in zip("abc", free, strict=False)]


def enough(nodes: list[GpuNode], is_real: bool = False, device: str = "cpu") -> str:
    return ready_checks.enough_gpus(nodes, 6, 3, 2, is_real, device)


def test_gpus_must_be_there_free_and_on_enough_nodes() -> None:
    assert enough(gpu_nodes(2, 2, 2)) == "6 of 6 GPUs are free on 3 nodes (a: 2 of 2, b: 2 of 2, c: 2 of 2)"
    for nodes, found in (
        (gpu_nodes(2, 2), r"4 of 4 GPUs are free on 2 nodes"),
        (gpu_nodes(2, 1, 2), r"5 of 6 .*b: 1 of 2"),
        ([], r"0 of 0 GPUs are free on 0 nodes"),
    ):
        with pytest.raises(Unready, match=found + r".*; wanted 6, with 2 on each of 3 nodes"):
            enough(nodes)
    one_wide_node = [GpuNode(node_id="a", label="a", num_gpus=8, num_free=8)]
    with pytest.raises(Unready, match="8 of 8 GPUs are free on 1 nodes"):
        enough(one_wide_node)
    with pytest.raises(Unready, match=r"they are logical ones, and engine\.device is cuda"):
        enough(gpu_nodes(2, 2, 2), device="cuda")


def reports(key: str, **values: Any) -> dict[str, dict[str, Seen]]:
    return {place: {key: value if isinstance(value, Seen) else Seen(value)} for place, value in values.items()}


def test_one_version_everywhere_and_the_place_that_differs_is_named() -> None:
    same = {"Python": "3.12.1", "vllm": "0.30.0"}
    assert (
        ready_checks.same_versions(reports("versions", driver=same, a=same)) == "Python 3.12.1, vllm 0.30.0 in 2 places"
    )
    for other, found in (("0.29.0", r"vllm is 0.30.0 \(driver, a\); 0.29.0 \(b\)"), ("", r"not installed \(b\)")):
        with pytest.raises(Unready, match=found):
            ready_checks.same_versions(reports("versions", driver=same, a=same, b={**same, "vllm": other}))
    with pytest.raises(Unready, match=r"vllm is not installed \(a, b\)"):
        ready_checks.same_versions(reports("versions", a={"vllm": ""}, b={"vllm": ""}))


def test_gpus_must_be_alike_and_large_enough() -> None:
    pair = [("RTX", 97887), ("RTX", 97887)]
    assert ready_checks.alike_gpus(reports("gpus", a=pair, b=pair), 95) == "2 x RTX (97887 MiB) (a, b)"
    with pytest.raises(Unready, match=r"102.6 GB each, wanted 110"):
        ready_checks.alike_gpus(reports("gpus", a=pair), 110)
    for odd, found in (
        ([("L40S", 46068)], r"2 x RTX .*\(a\); 1 x L40S \(46068 MiB\) \(b\)"),
        ([("RTX", 97887), ("RTX", 48000)], r"1 x RTX \(97887 MiB\) and 1 x RTX \(48000 MiB\) \(b\)"),
        ([], r"no GPU \(b\)"),
        (Seen(error="FileNotFoundError: nvidia-smi"), r"FileNotFoundError: nvidia-smi \(b\)"),
    ):
        with pytest.raises(Unready, match=found):
            ready_checks.alike_gpus(reports("gpus", a=pair, b=odd), 0)


def test_a_folder_is_shared_when_each_sees_the_other() -> None:
    assert ready_checks.one_file_system(reports("shared", driver=True, a=True), Seen([])) == (
        "written and read in 2 places"
    )
    with pytest.raises(Unready, match=r"^the driver does not see what a wrote"):
        ready_checks.one_file_system(reports("shared", driver=True, a=True), Seen(["a"]))
    broken = reports("shared", driver=True, a=Seen(error="FileNotFoundError: x"), b=True)
    with pytest.raises(Unready, match=r"FileNotFoundError: x \(a\); the driver does not see what b wrote"):
        ready_checks.one_file_system(broken, Seen(["b"]))


def test_too_little_space_says_how_much_there_is() -> None:
    assert ready_checks.enough_space(Seen(300.0), "/shared", 250) == "/shared has 300.0 GB free"
    with pytest.raises(Unready, match=r"/shared has 3\.0 GB free, wanted 250"):
        ready_checks.enough_space(Seen(3.0), "/shared", 250)


def test_models_of_two_contents_are_not_one() -> None:
    with pytest.raises(Unready, match=r"config.json differs: SHA-256 aaaaaaaaaaaa \(a\); bbbbbbbbbbbb \(b\)"):
        ready_checks.same_model(reports("model", a="a" * 64, b="b" * 64))


def test_a_look_that_hangs_keeps_none_of_the_others() -> None:
    hangs = threading.Event()
    started = time.monotonic()
    seen = seen_within(0.2, {"shared": lambda: hangs.wait(30), "versions": lambda: "v", "mlflow": lambda: 1 / 0})
    hangs.set()
    assert time.monotonic() - started < 5
    assert seen["versions"] == Seen("v")
    assert seen["shared"].error == "no answer within 0.2 s"
    assert seen["mlflow"].error.startswith("ZeroDivisionError")


def test_a_node_answers_only_what_it_is_asked_and_an_old_file_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / DRIVER_FILE).write_text("new")
    wants = NodeWants(
        keys=("shared", "model"),
        probe_dir=str(tmp_path),
        token="new",
        model_path=str(tmp_path),
        tracking_uri="http://127.0.0.1:1",
        timeout_s=5,
    )
    seen = look(wants, "node-1")
    assert set(seen) == {"shared", "model"}
    assert (tmp_path / "node-1").read_text() == "new"
    assert "config.json" in seen["model"].error
    with pytest.raises(RuntimeError, match="holds 'new', the driver wrote 'newer'"):
        exchange(tmp_path, "newer", "node-1")
    assert versions()["ray"], "installed here"
    assert versions()["skyrl"] == "", "not installed here"


def test_every_check_is_told_once_with_its_remedy_and_what_is_late_does_not_hold(
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdicts = Verdicts(EventLog(), skip=("mlflow",))

    def broken() -> str:
        raise Unready("two versions")

    verdicts.tell("versions", broken)
    verdicts.tell("mlflow", broken)
    verdicts.tell("space", lambda: "300 GB")
    verdicts.tell("model", lambda: str(1 / 0))
    verdicts.give_up(9)
    events = map(parse_line, capsys.readouterr().out.splitlines())
    told = {event.name: event for event in events if isinstance(event, Checked)}
    assert list(told) == [CHECKS[key][0] for key in ("versions", "mlflow", "space", "model")] + [
        CHECKS[key][0] for key in ("resources", "gpus", "shared", "all_reduce")
    ]
    by_key = {key: told[name] for key, (name, _) in CHECKS.items()}
    assert by_key["versions"] == Checked(
        name=CHECKS["versions"][0], holds=False, found="two versions", remedy=CHECKS["versions"][1]
    )
    assert by_key["mlflow"].found == "skipped (readiness.nodes.skip)"
    assert by_key["model"].found == "ZeroDivisionError: division by zero"
    late = by_key["all_reduce"]
    assert (late.holds, late.found) == (False, "not reached: the checks together took longer than 9 s")


def test_a_job_that_hangs_ends_itself_and_leaves_no_check_untold() -> None:
    code = (
        "import time; from rl.events import EventLog; from rl.ready import Verdicts, end_after; "
        "v = Verdicts(EventLog()); v.tell('space', lambda: 'enough'); end_after(0.3, v); time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    events = [event for event in map(parse_line, done.stdout.splitlines()) if isinstance(event, Checked)]
    assert done.returncode == 0
    assert len(events) == len(CHECKS)
    assert [event.name for event in events if event.holds] == [CHECKS["space"][0]]


def test_shards_that_are_missing_are_named(tmp_path: Path) -> None:
    assert missing_weights(tmp_path) == ["model.safetensors"]
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-1.safetensors").touch()
    assert missing_weights(tmp_path) == ["model-2.safetensors"]


def test_limits_that_cannot_hold_together_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"timeout_s is 100, the checks alone may take 390 s"):
        NodeReadiness(timeout_s=100, model_timeout_s=50)
    with pytest.raises(ValidationError, match="skip"):
        NodeReadiness.model_validate({"skip": ["gpu"]})


def test_starting_up_imports_nothing_heavy() -> None:
    code = "import sys, rl.ready, rl.node; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "pandas", "ray"} & set(done.stdout.split())


class Jobs:
    """Ray Jobs that remembers ``known`` and tells ``lines`` before the job ends as ``ends``."""

    def __init__(self, lines: list[str], ends: str = "SUCCEEDED", known: Mapping[str, str] | None = None) -> None:
        self.lines, self.ends, self.known = lines, ends, dict(known or {})
        self.submitted: list[str] = []
        self.stopped: list[str] = []

    def submission_ids(self) -> list[str]:
        return list(self.known)

    def submit(self, submission_id: str, entrypoint: str, env_vars: dict[str, str]) -> None:
        self.submitted.append(submission_id)

    def state(self, submission_id: str) -> JobState:
        return JobState(self.known.get(submission_id, self.ends), "")

    def log_lines(self, submission_id: str, silence_s: float) -> Iterator[str]:
        for line in self.lines:
            if line == "SILENCE":
                raise TimeoutError
            yield line

    def stop(self, submission_id: str) -> None:
        self.stopped.append(submission_id)


class Quiet:
    def line(self, text: str) -> None: ...

    def metrics(self, step: int, values: Mapping[str, float]) -> None: ...

    def progress(self, done: int, total: int, text: str) -> None: ...

    def evaluation(self, report: Any) -> None: ...


class Cancelled(BaseException): ...


def told(*names: str, holds: bool = True) -> list[str]:
    return [PREFIX + Checked(name=name, holds=holds, found="f", remedy="r").model_dump_json() for name in names]


ALL = [*(name for name, _ in CHECKS.values()), store_check.CHECK]


def test_what_the_job_told_becomes_checks() -> None:
    found = check_nodes(lambda: Jobs(told(*ALL)), JOB, ORDER, STORE, Quiet())
    assert [check.name for check in found] == ALL
    assert all(check.holds for check in found)


def test_a_job_that_dies_is_one_more_check_and_hides_nothing() -> None:
    jobs = Jobs([*told(ALL[0], holds=False), "OSError: no space left"], ends="FAILED")
    first, ended = check_nodes(lambda: jobs, JOB, ORDER, STORE, Quiet())
    assert (first.name, first.holds) == (ALL[0], False)
    assert (ended.name, ended.holds) == (ENDED, False)
    assert "job r-ready-1 is FAILED" in ended.found
    assert "OSError: no space left" in ended.found
    assert f"nothing was told of: {ALL[1]}, " in ended.found


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["SILENCE"], "it said nothing for 545 s and was stopped; nothing was told of: "),
        (told(*ALL[:-1]), f"it succeeded; nothing was told of: {store_check.CHECK}"),
    ],
)
def test_a_job_that_says_too_little_does_not_pass(lines: list[str], found: str) -> None:
    *_, ended = check_nodes(lambda: Jobs(lines), JOB, ORDER, STORE, Quiet())
    assert not ended.holds
    assert ended.found.startswith(found)


def test_a_cluster_that_takes_no_jobs_is_a_check_too() -> None:
    def connect() -> Jobs:
        raise ClusterUnreachable("no Ray Jobs API at http://ray")

    (ended,) = check_nodes(connect, JOB, ORDER, STORE, Quiet())
    assert ended.found.startswith("no Ray Jobs API at http://ray; nothing was told of: ")


def test_whoever_stops_following_stops_the_job() -> None:
    class Interrupted(Quiet):
        def line(self, text: str) -> None:
            raise Cancelled

    jobs = Jobs(["hello"], known={"r-ready-1": "RUNNING"})
    with pytest.raises(Cancelled):
        check_nodes(lambda: jobs, JOB, ORDER, STORE, Interrupted())
    assert jobs.stopped == ["r-ready-1"]


@pytest.mark.parametrize(
    ("known", "wanted", "submits"),
    [
        ({}, "r-ready-1", True),
        ({"r-ready-1": "SUCCEEDED"}, "r-ready-2", True),
        ({"r-ready-1": "SUCCEEDED", "r-ready-2": "FAILED"}, "r-ready-3", True),
        ({"r-ready-1": "SUCCEEDED", "r-ready-2": "RUNNING"}, "r-ready-2", False),
    ],
)
def test_only_an_attempt_that_still_runs_is_taken_up(known: dict[str, str], wanted: str, submits: bool) -> None:
    jobs = Jobs([], known=known)
    assert submit_anew(jobs, "r-ready", "true") == wanted
    assert jobs.submitted == ([wanted] if submits else [])


def test_the_second_program_runs_whatever_becomes_of_the_first(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\necho "$2"\n[ "$2" = rl.ready ]\n')
    fake.chmod(0o755)
    job = JobSettings(project_dir=str(tmp_path), python=str(fake))
    done = subprocess.run(command(job, ORDER, STORE), shell=True, capture_output=True, text=True)
    assert done.stdout.split() == ["serving.store_check", "rl.ready"]
    assert done.returncode == 0, "the store's verdict is an event, not an exit code"


def answer(monkeypatch: pytest.MonkeyPatch, try_store: Callable[..., str]) -> Checked:
    monkeypatch.setattr(store_check, "try_store", try_store)
    monkeypatch.setattr(store_check.boto3, "client", lambda _: None)
    event = parse_line(PREFIX + json.dumps(store_check.check(STORE.model_copy(update={"timeout_s": 0.2}))))
    assert isinstance(event, Checked)
    return event


def test_the_store_s_verdict_is_an_event_that_the_orchestrator_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any) -> str:
        raise PermissionError("AccessDenied")

    held = threading.Event()
    assert answer(monkeypatch, lambda *_: "s3://models/a.probe-r-job").holds
    assert answer(monkeypatch, denied).found == "PermissionError: AccessDenied"
    late = answer(monkeypatch, lambda *_: str(held.wait(30)))
    held.set()
    assert (late.found, late.remedy) == ("no answer within 0.2 s", store_check.REMEDY)
