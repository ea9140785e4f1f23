"""Folders as SkyRL writes them, for tests that choose among them."""

from __future__ import annotations

from pathlib import Path

from rl.grpo.checkpoints import mark_whole


def write_checkpoint(folder: Path, step: int, world_size: int, leave_out: str = "") -> Path:
    """A marked checkpoint with 40 bytes a file, named as SkyRL 0.4 names them (its fsdp_strategy and trainer)."""
    root = folder / f"global_step_{step}"
    (root / "policy").mkdir(parents=True)
    names = [
        f"policy/{kind}_world_size_{world_size}_rank_{rank}.pt"
        for kind in ("model", "optim", "extra_state")
        for rank in range(world_size)
    ]
    for name in [*names, "data.pt", "trainer_state.pt"]:
        if name != leave_out:
            (root / name).write_bytes(b"x" * 40)
    mark_whole(root)
    return root
