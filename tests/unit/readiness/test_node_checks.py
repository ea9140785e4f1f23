"""The checks on the nodes by their pure parts: what looks mean together, what is late, what is told once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rl.events import Checked, EventLog, parse_line
from rl.model_files import CONFIG, missing_files
from rl.readiness import checks as ready_checks
from rl.readiness.checks import GpuNode, Unready
from rl.readiness.job import Verdicts
from rl.readiness.node import DRIVER_FILE, Seen, exchange, look, seen_within, versions
from rl.readiness.settings import CHECKS, NodeReadiness, NodeWants


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
        "import time; from rl.events import EventLog; from rl.readiness.job import Verdicts, end_after; "
        "v = Verdicts(EventLog()); v.tell('space', lambda: 'enough'); end_after(0.3, v); time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    events = [event for event in map(parse_line, done.stdout.splitlines()) if isinstance(event, Checked)]
    assert done.returncode == 0
    assert len(events) == len(CHECKS)
    assert [event.name for event in events if event.holds] == [CHECKS["space"][0]]


def test_shards_that_are_missing_are_named(tmp_path: Path) -> None:
    assert missing_files(tmp_path) == [CONFIG, "model.safetensors"]
    (tmp_path / CONFIG).touch()
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-1.safetensors").touch()
    assert missing_files(tmp_path) == ["model-2.safetensors"]


def test_limits_that_cannot_hold_together_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"timeout_s is 100, the checks alone may take 390 s"):
        NodeReadiness(timeout_s=100, model_timeout_s=50)
    with pytest.raises(ValidationError, match="skip"):
        NodeReadiness.model_validate({"skip": ["gpu"]})


def test_starting_up_imports_nothing_heavy() -> None:
    code = "import sys, rl.readiness.job, rl.readiness.node; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "pandas", "ray"} & set(done.stdout.split())
