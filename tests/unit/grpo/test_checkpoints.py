"""Checkpoints are judged by their mark: what was written, byte by byte. Real folders, nothing is faked."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl.grpo.checkpoints import (
    MARK,
    CheckpointMismatch,
    adapter_digests,
    find_checkpoint,
    mark_whole,
    set_aside,
    step_folders,
    unmark,
    what_is_wrong,
)
from tests.unit.grpo.folders import write_checkpoint

SHARD = "policy/optim_world_size_2_rank_1.pt"


def test_a_run_resumes_from_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    assert find_checkpoint(tmp_path / "none", 1).checkpoint is None
    write_checkpoint(tmp_path, 4, 2)
    write_checkpoint(tmp_path, 12, 2)
    write_checkpoint(tmp_path, 20, 2, leave_out=SHARD)
    write_checkpoint(tmp_path, 24, 2, leave_out="data.pt")
    unmark(write_checkpoint(tmp_path, 28, 2))
    # SkyRL's pointer may lag behind or lead astray: it is not asked.
    (tmp_path / "latest_ckpt_global_step.txt").write_text("28")
    found = find_checkpoint(tmp_path, 2)
    assert found.checkpoint is not None
    assert found.checkpoint.step == 12
    assert [(entry.checkpoint.step, entry.reason) for entry in found.passed_over] == [
        (28, "it has no complete.json, so it was not written to its end"),
        (24, "data.pt was never written"),
        (20, f"{SHARD} was never written"),
    ]


@pytest.mark.parametrize("name", [SHARD, "trainer_state.pt", "policy/model_world_size_2_rank_0.pt"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"x" * 10, "has 10 bytes, 40 were written"),
        (b"", "has 0 bytes, 40 were written"),
        (b"y" * 40, "holds other bytes than were written"),
        (None, "is gone"),
    ],
)
def test_a_checkpoint_with_a_cut_file_is_passed_over_with_its_reason(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    write_checkpoint(tmp_path, 60, 2)
    damaged = write_checkpoint(tmp_path, 80, 2) / name
    if content is None:
        damaged.unlink()
    else:
        damaged.write_bytes(content)
    found = find_checkpoint(tmp_path, 2)
    assert found.checkpoint is not None
    assert found.checkpoint.step == 60
    (passed_over,) = found.passed_over
    assert str(passed_over) == f"{tmp_path}/global_step_80 is passed over: {name} {reason}"


@pytest.mark.parametrize("torn", [b"", b"{", b'{"files": 1}', b"\xff"])
def test_a_mark_that_cannot_be_read_marks_nothing(tmp_path: Path, torn: bytes) -> None:
    (write_checkpoint(tmp_path, 4, 1) / MARK).write_bytes(torn)
    assert what_is_wrong(tmp_path / "global_step_4", []) == "its complete.json cannot be read"


def test_what_is_passed_over_is_kept_and_never_counted_among_the_checkpoints(tmp_path: Path) -> None:
    for _ in range(2):
        unmark(write_checkpoint(tmp_path, 80, 1))
        set_aside(find_checkpoint(tmp_path, 1).passed_over)
    assert step_folders(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "passed_over_1_global_step_80",
        "passed_over_2_global_step_80",
    ]


def test_a_checkpoint_of_another_world_size_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 4, 6)
    with pytest.raises(CheckpointMismatch, match="this run has 4 ranks; bring back the ranks it was written with"):
        find_checkpoint(tmp_path, 4)


def test_an_export_without_weights_is_named(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"has no adapter_model.safetensors; the export is incomplete"):
        adapter_digests(tmp_path)
    mark_whole(tmp_path)
    assert what_is_wrong(tmp_path) == "adapter_model.safetensors was never written"
