"""Process entry point: build the tiny base model and fine-tune it on oracle walks (``python -m rl.base_model.sft``).

It plays the part of the VisGym SFT checkpoint. Deterministic for one seed, machine and thread count: weights,
walks and their order come from the seed, and CPU kernels of one build repeat themselves.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen3VLForConditionalGeneration

from rl.base_model.build import build_model, build_processor
from rl.base_model.perception import PerceptionHead
from rl.base_model.play import play_greedily
from rl.base_model.walks import EpisodeEncoder, Turn, stumbling_walk, training_mazes, walk_batches
from rl.eval_set import EvalSet, load_eval_set
from rl.events import Evaluated, EventLog, Metrics, Progress
from rl.score import EvalReport, make_report
from rl.settings import BaseModelSettings, WalkStage

WARMUP_STEPS = 20


def learning_rate(step: int, num_steps: int, peak: float) -> float:
    """Linear warm-up, then half a cosine down to a tenth of the peak."""
    if step < WARMUP_STEPS:
        return peak * (step + 1) / WARMUP_STEPS
    progress = (step - WARMUP_STEPS) / max(1, num_steps - WARMUP_STEPS)
    return peak * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def fine_tune(settings: BaseModelSettings, log: EventLog) -> EvalReport:
    """Run all stages, report on the way, save model, processor and card; returns the final evaluation."""
    eval_set = load_eval_set(Path(settings.eval_manifest))
    trainer = SftTrainer(settings, eval_set, log)
    for number, stage in enumerate(settings.stages):
        trainer.run_stage(number, stage)
    return trainer.evaluate_and_save()


class SftTrainer:
    """The model under training and the count of its steps over all stages."""

    def __init__(self, settings: BaseModelSettings, eval_set: EvalSet, log: EventLog) -> None:
        self._settings, self._eval_set, self._log = settings, eval_set, log
        self.processor: Any = build_processor()
        self.model: Any = build_model(self.processor, settings.seed)
        if settings.initial_model:
            self.model = Qwen3VLForConditionalGeneration.from_pretrained(settings.initial_model)
        self._perceive = PerceptionHead(self.model)
        self._encode = EpisodeEncoder(self.processor)
        self._total = sum(stage.num_steps for stage in settings.stages)
        self._step = 0

    def run_stage(self, number: int, stage: WalkStage) -> None:
        parameters = [*self.model.parameters(), *self._perceive.parameters()]
        optimizer = torch.optim.AdamW(parameters, betas=(0.9, 0.95), weight_decay=0.01)
        batches = walk_batches(self._walks(number, stage), self._settings.episodes_per_step)
        for step, episodes in zip(range(stage.num_steps), batches, strict=False):
            rate = learning_rate(step, stage.schedule_steps, stage.peak_learning_rate)
            for group in optimizer.param_groups:
                group["lr"] = rate
            self._update(episodes, optimizer, parameters)
            interval = self._settings.eval_interval
            if interval and self._step % interval == 0 and self._step < self._total:
                self.evaluate_and_save()

    def _walks(self, number: int, stage: WalkStage) -> Iterator[list[Turn]]:
        settings = self._settings
        seed = settings.seed + 1000 * number
        rng = np.random.default_rng(seed)
        for maze in training_mazes(settings.maze, seed, set(self._eval_set.fingerprints), settings.max_turns):
            yield stumbling_walk(maze, settings.maze.cell_px, rng, stage.stumble_rate, settings.max_turns)

    def _update(self, episodes: list[list[Turn]], optimizer: torch.optim.Optimizer, parameters: list[Any]) -> None:
        started = time.perf_counter()
        loss = self.model.train()(**self._encode(episodes)).loss
        seen = self._perceive([turn.image for episode in episodes for turn in episode])
        (loss + seen).backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        self._step += 1
        values = {
            "sft/loss": float(loss),
            "sft/perception_loss": float(seen),
            "sft/grad_norm": float(norm),
            "sft/learning_rate": optimizer.param_groups[0]["lr"],
            "sft/step_s": time.perf_counter() - started,
        }
        self._log.emit(Metrics(step=self._step, values=values))
        self._log.emit(Progress(done=self._step, total=self._total, text=f"loss {float(loss):.4f}"))

    def evaluate_and_save(self) -> EvalReport:
        """Play the held-out mazes greedily and write the model with a card that says how it did."""
        settings = self._settings
        seeds = [maze.seed for maze in self._eval_set.mazes]
        played = play_greedily(self.model.eval(), self.processor, settings.maze, seeds, settings.max_turns)
        report = make_report(self._step, self._eval_set.sha256, "sft", seeds, played)
        self._log.emit(Evaluated(report=report))
        save(self.model, self.processor, settings, report)
        return report


def save(model: Any, processor: Any, settings: BaseModelSettings, report: EvalReport) -> None:
    """Write a folder that ``from_pretrained`` reads, with a model card."""
    folder = Path(settings.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    processor.tokenizer.padding_side = "left"
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    (folder / "README.md").write_text(_card(settings, report, num_parameters))


def _card(settings: BaseModelSettings, report: EvalReport, num_parameters: int) -> str:
    maze = settings.maze
    recipe = ", then ".join(
        f"{stage.num_steps} at a peak rate of {stage.peak_learning_rate} with {stage.stumble_rate:.0%} stumbles"
        for stage in settings.stages
    )
    return f"""\
# Tiny Qwen3-VL for maze_2d

A Qwen3-VL of {num_parameters:,} parameters (four text layers, one vision layer, float32) with its own tokenizer,
made by this project. It stands in for the VisGym SFT checkpoint of Qwen3-VL-8B where there is no GPU.

| | |
|---|---|
| data | shortest-path walks in random {maze.height}x{maze.width} mazes, {maze.cell_px} px a cell, at most \
{settings.max_turns} turns; the evaluation mazes are left out by fingerprint |
| training | {report.step} steps of {settings.episodes_per_step} whole episodes, AdamW, seed {settings.seed}; \
{recipe} |
| evaluation | {report.num_solved} of {report.num_mazes} held-out mazes solved, greedy, evaluation set \
{report.eval_set_sha256[:12]} |
| replies without an action | {report.unparsable_replies} |

Made again with `make base-model`. It knows mazes of this size and the maze_2d prompt, and nothing else.
"""


def main(argv: list[str]) -> None:
    settings = BaseModelSettings.model_validate_json(argv[1])
    fine_tune(settings, EventLog(Path(settings.output_dir) / "events.jsonl"))


if __name__ == "__main__":
    main(sys.argv)
