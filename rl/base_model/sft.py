"""Process entry point: build the tiny base model and fine-tune it on oracle walks (``python -m rl.base_model.sft``).

It plays the part of the VisGym SFT checkpoint. Deterministic for one seed, machine and thread count: weights,
walks and their order come from the seed, and CPU kernels of one build repeat themselves.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import torch
from transformers import Qwen3VLForConditionalGeneration, Qwen3VLProcessor

from rl.base_model.build import build_model, build_processor
from rl.base_model.perception import PerceptionHead
from rl.base_model.play import play_greedily
from rl.base_model.walks import EpisodeEncoder, training_mazes, walk_batches
from rl.eval_set import EvalSet, load_eval_set
from rl.events import Evaluated, EventLog, Metrics, Progress
from rl.score import EvalReport, make_report
from rl.settings import BaseModelSettings

WARMUP_STEPS = 20


def learning_rate(step: int, num_steps: int, peak: float) -> float:
    """Linear warm-up, then half a cosine down to a tenth of the peak."""
    if step < WARMUP_STEPS:
        return peak * (step + 1) / WARMUP_STEPS
    progress = (step - WARMUP_STEPS) / max(1, num_steps - WARMUP_STEPS)
    return peak * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def fine_tune(settings: BaseModelSettings, log: EventLog) -> EvalReport:
    """Train, report as it goes, save model, processor and card; returns the final evaluation."""
    eval_set = load_eval_set(Path(settings.manifest_path))
    processor = build_processor()
    model = build_model(processor, settings.seed)
    encode = EpisodeEncoder(processor)
    mazes = training_mazes(settings.maze, settings.seed, set(eval_set.fingerprints), settings.max_turns)
    batches = walk_batches(mazes, settings.maze.cell_px, settings.episodes_per_step)
    perceive = PerceptionHead(model)
    parameters = [*model.parameters(), *perceive.parameters()]
    optimizer = torch.optim.AdamW(parameters, betas=(0.9, 0.95), weight_decay=0.01)
    report = None
    for step, episodes in zip(range(1, settings.num_steps + 1), batches, strict=False):
        started = time.perf_counter()
        rate = learning_rate(step - 1, settings.num_steps, settings.peak_learning_rate)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = model.train()(**encode(episodes)).loss
        seen = perceive([turn.image for episode in episodes for turn in episode])
        (loss + seen).backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        values = {
            "sft/loss": float(loss),
            "sft/perception_loss": float(seen),
            "sft/grad_norm": float(norm),
            "sft/learning_rate": rate,
        }
        log.emit(Metrics(step=step, values={**values, "sft/step_s": time.perf_counter() - started}))
        log.emit(
            Progress(done=step, total=settings.num_steps, text=f"loss {float(loss):.4f}, perception {float(seen):.4f}")
        )
        if step == settings.num_steps or (settings.eval_interval and step % settings.eval_interval == 0):
            report = evaluate(model, processor, settings, eval_set, step)
            log.emit(Evaluated(report=report))
            save(model, processor, settings, report)
    assert report is not None
    return report


def evaluate(
    model: Qwen3VLForConditionalGeneration,
    processor: Qwen3VLProcessor,
    settings: BaseModelSettings,
    eval_set: EvalSet,
    step: int,
) -> EvalReport:
    """Play the held-out mazes greedily."""
    seeds = [maze.seed for maze in eval_set.mazes]
    played = play_greedily(model.eval(), processor, settings.maze, seeds, settings.max_turns)
    return make_report(step, eval_set.sha256, "sft", seeds, played)


def save(
    model: Qwen3VLForConditionalGeneration, processor: Qwen3VLProcessor, settings: BaseModelSettings, report: EvalReport
) -> None:
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
    return f"""\
# Tiny Qwen3-VL for maze_2d

A Qwen3-VL of {num_parameters:,} parameters (four text layers, one vision layer, float32) with its own tokenizer,
made by this project. It stands in for the VisGym SFT checkpoint of Qwen3-VL-8B where there is no GPU.

| | |
|---|---|
| data | shortest-path walks in random {maze.height}x{maze.width} mazes, {maze.cell_px} px a cell, at most \
{settings.max_turns} turns; the evaluation mazes are left out by fingerprint |
| training | {report.step} steps of {settings.episodes_per_step} whole episodes, AdamW, peak learning rate \
{settings.peak_learning_rate}, seed {settings.seed} |
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
