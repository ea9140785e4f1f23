"""A shared folder that is read-only, or full: real mounts of a process of its own, which only root may make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.loopback import can_mount

pytestmark = pytest.mark.skipif(not can_mount(), reason="this user may not mount anything")

ROOT = Path(__file__).resolve().parents[3]
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@" "$0"'
SMALL = 'mount -t tmpfs -o size=256k none "$0" && exec "$@" "$0"'
READINESS = """
import sys
from concurrent.futures import Future
from rl.readiness.job import LOOKS, close_probe, open_probe
from rl.readiness.checks import one_file_system
from rl.readiness.node import look, seen_within
from rl.readiness.settings import NodeReadiness, ReadyJob
checks = NodeReadiness(min_gpu_memory_gb=1, skip=["gpus", "versions", "model", "mlflow"])
job = ReadyJob(
    run_name="r", checks=checks, device="cpu", num_gpus=2, num_policy_nodes=1, num_gpus_per_node=1, env={},
    shared_dir=sys.argv[1], min_free_disk_gb=0, model_path="", tracking_uri="http://127.0.0.1:1",
)
wants, failed = open_probe(job)
reports = {"driver": look(wants, "driver") | failed}
unseen = seen_within(5, {"files": lambda: close_probe(wants, reports, [])})["files"]
try:
    one_file_system(reports, unseen)
except RuntimeError as error:
    print("NOT READY", error)
"""
FULL = """
import sys
from pathlib import Path
from rl.grpo.checkpoints import find_checkpoint
from tests.unit.grpo.folders import write_checkpoint
folder = Path(sys.argv[1])
write_checkpoint(folder, 2, 1)
try:
    (folder / "global_step_4" / "policy").mkdir(parents=True)
    with (folder / "global_step_4" / "policy" / "model_world_size_1_rank_0.pt").open("wb") as file:
        file.write(b"x" * 1_000_000)
except OSError as error:
    print(error)
found = find_checkpoint(folder, 1)
print(found.checkpoint.step, [str(entry.checkpoint.step) + ": " + entry.reason for entry in found.passed_over])
"""


def on(mount: str, folder: Path, code: str) -> str:
    command = ["unshare", "-m", "sh", "-c", mount, str(folder), sys.executable, "-c", code]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_shared_folder_that_takes_nothing_is_seen_before_training(tmp_path: Path) -> None:
    said = on(READ_ONLY, tmp_path, READINESS)
    assert said.startswith("NOT READY")
    assert "Read-only file system" in said


def test_a_disk_that_fills_up_while_a_checkpoint_is_written_leaves_the_one_before_whole(tmp_path: Path) -> None:
    said = on(SMALL, tmp_path, FULL).splitlines()
    assert said[0] == "[Errno 28] No space left on device"
    assert said[1] == "2 ['4: it has no complete.json, so it was not written to its end']"
