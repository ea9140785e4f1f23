"""SkyRL's own training loop under MazeTrainer, taken up from a checkpoint: workers record, the loop is real.

The fakes answer what ``RayPPOTrainer.train`` asks of them (skyrl/train/trainer.py, 0.4.0).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.trainer import RayPPOTrainer, ResumeMode

from rl.events import EventLog, Saved, parse_line
from rl.grpo.checkpoints import ADAPTER_FILES, find_checkpoint, mark_whole, what_is_wrong
from rl.grpo.experiment import MazeTrainer
from tests.unit.grpo.folders import write_checkpoint

LAST = 16


class Anything:
    """Takes any call, awaited or not, and remembers its name."""

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        def called(*arguments: Any, **named: Any) -> Any:
            self._calls.append(name)
            return asyncio.sleep(0) if name in ("save_weights_for_sampler", "aclose") else {}

        return called


class TakenUp(MazeTrainer):
    """Everything that needs a worker or an engine only leaves its name."""

    def __init__(self, root: Path, log: EventLog) -> None:
        self.calls: list[str] = []
        self.cfg = SkyRLTrainConfig.from_cli_overrides(
            {
                "trainer.epochs": 1,
                "trainer.max_training_steps": LAST,
                "trainer.ckpt_interval": 4,
                "trainer.hf_save_interval": 4,
                "trainer.eval_interval": 4,
                "trainer.ckpt_path": str(root / "checkpoints"),
                "trainer.export_path": str(root / "exports"),
                "trainer.max_ckpts_to_keep": 1,
                "trainer.resume_path": str(root / "checkpoints" / "global_step_16"),
            }
        )
        self._log, self._resumed_step = log, None
        self.resume_mode, self.global_step, self.total_training_steps = ResumeMode.FROM_PATH, 0, LAST
        self.train_dataloader = ["a batch"] * 128  # type: ignore[assignment]
        self.dispatch = self.generator = self.tracker = Anything(self.calls)  # type: ignore[assignment]
        self.all_metrics, self.all_timings = {}, {}
        self._ray_gpu_monitor = self._vllm_metrics_scraper = None
        self._training_control = SimpleNamespace(reset=lambda: None)  # type: ignore[assignment]
        self.colocate_all = False

    def _fire(self, event_name: str, **fields: Any) -> None:
        self.calls.append(event_name)

    def _profiler_start(self) -> None: ...

    def _profiler_stop(self) -> None: ...

    @property
    def has_critic(self) -> bool:
        return False

    def init_weight_sync_state(self) -> None: ...

    async def eval(self, vllm_metrics_scraper: Any = None) -> dict[str, float]:
        self.calls.append(f"evaluated {self.global_step}")
        return {}


@pytest.fixture
def skyrl_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """SkyRL's part of saving and loading, without workers."""

    def load(self: TakenUp) -> tuple[int, str]:
        return LAST, str(self.cfg.trainer.resume_path)

    def export(self: TakenUp) -> None:
        self.calls.append(f"exported {self.global_step}")
        write_export(Path(self.cfg.trainer.export_path), self.global_step)

    def save(self: TakenUp) -> str:
        folder = Path(self.cfg.trainer.ckpt_path) / f"global_step_{self.global_step}"
        (folder / "policy").mkdir(parents=True, exist_ok=True)
        for kind in ("model", "optim", "extra_state"):
            (folder / "policy" / f"{kind}_world_size_1_rank_0.pt").write_bytes(b"new")
        (folder / "data.pt").write_bytes(b"new")
        (folder / "trainer_state.pt").write_bytes(b"new")
        self._cleanup_old_checkpoints()
        return str(folder)

    monkeypatch.setattr(RayPPOTrainer, "load_checkpoints", load)
    monkeypatch.setattr(RayPPOTrainer, "save_models", export)
    monkeypatch.setattr(RayPPOTrainer, "save_checkpoints", save)


def write_export(root: Path, step: int) -> Path:
    folder = root / f"global_step_{step}" / "policy"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ADAPTER_FILES:
        (folder / name).write_text(name)
    return folder


def told(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, int]]:
    events = [parse_line(line) for line in capsys.readouterr().out.split("\n")]
    return [(event.kind, event.step) for event in events if isinstance(event, Saved)]


@pytest.mark.usefixtures("skyrl_files")
@pytest.mark.parametrize("exported", [True, False])
def test_a_run_killed_in_its_last_evaluation_is_evaluated_and_takes_no_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], exported: bool
) -> None:
    before = write_checkpoint(tmp_path / "checkpoints", LAST, 1)
    if exported:
        mark_whole(write_export(tmp_path / "exports", LAST))
    trainer = TakenUp(tmp_path, EventLog(tmp_path / "events.jsonl"))
    asyncio.run(trainer.train())
    assert "on_step_start" not in trainer.calls
    assert f"evaluated {LAST}" in trainer.calls
    assert (f"exported {LAST}" in trainer.calls) is not exported
    assert trainer.global_step == LAST
    assert told(capsys) == [("export", LAST)]
    assert what_is_wrong(before, ()) == ""
    assert what_is_wrong(tmp_path / "exports" / f"global_step_{LAST}" / "policy") == ""


@pytest.mark.usefixtures("skyrl_files")
def test_a_new_checkpoint_is_marked_before_an_old_one_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = tmp_path / "checkpoints"
    write_checkpoint(checkpoints, 12, 1)
    whole_when_cleaned: list[int | None] = []

    def cleaned(path: str, num_kept: int) -> None:
        found = find_checkpoint(checkpoints, 1).checkpoint
        whole_when_cleaned.append(found.step if found else None)

    monkeypatch.setattr("rl.grpo.experiment.cleanup_old_checkpoints", cleaned)
    trainer = TakenUp(tmp_path, EventLog(tmp_path / "events.jsonl"))
    trainer.global_step = LAST
    trainer.save_checkpoints()
    trainer.save_models()
    assert whole_when_cleaned == [LAST]
    assert told(capsys) == [("checkpoint", LAST), ("export", LAST)]
