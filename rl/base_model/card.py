"""The model folder: weights, processor and a card that says how the model was made and how it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl.base_model.settings import BaseModelSettings, WalkStage
from rl.maze.score import EvalReport


def save(model: Any, processor: Any, settings: BaseModelSettings, report: EvalReport) -> None:
    """Write a folder that ``from_pretrained`` reads, with a model card."""
    folder = Path(settings.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    processor.tokenizer.padding_side = "left"
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    (folder / "README.md").write_text(card(settings, report, num_parameters))


def card(settings: BaseModelSettings, report: EvalReport, num_parameters: int) -> str:
    """The card's text (Markdown)."""
    maze, sight = settings.maze, settings.sight
    walks = "".join(f"| {2 + number}. walks | {_walk_line(stage)} |\n" for number, stage in enumerate(settings.walks))
    return f"""\
# Tiny Qwen3-VL for maze_2d

A Qwen3-VL of {num_parameters:,} parameters (float32) with its own tokenizer, made by this project. It stands in for
the VisGym SFT checkpoint of Qwen3-VL-8B where there is no GPU: it knows the way and the protocol, and has picked up
from its demonstrations the habit of looking back before it turns a corner, which costs it turns. Reinforcement
learning is there to mend that.

| | |
|---|---|
| data | random {maze.height}x{maze.width} mazes, {maze.cell_px} px a cell, at most {settings.max_turns} turns; the \
evaluation mazes are left out by fingerprint |
| 1. sight | the vision tower alone, {sight.num_steps} steps of {sight.pictures_per_step} pictures at a peak rate of \
{sight.peak_learning_rate}; each visual token reads what stands in its cell, which neighbours are free and which way \
leads to the target (the reading head is thrown away) |
{walks}| optimiser | AdamW, a new one for each stage, warm-up and half a cosine; seed {settings.seed} |
| evaluation | {report.num_solved} of {report.num_mazes} held-out mazes solved, greedy, evaluation set \
{report.rules.eval_set_sha256[:12]} |
| replies without an action | {report.unparsable_replies} |

Made again with `make base-model`. It knows mazes of this size and the maze_2d prompt, and nothing else.
"""


def _walk_line(stage: WalkStage) -> str:
    asked = "; the hidden state before a reply has to name the whole action" if stage.decision_loss_weight else ""
    return (
        f"the whole model, {stage.num_steps} steps of {stage.episodes_per_step} whole episodes at a peak rate of "
        f"{stage.peak_learning_rate}; shortest paths with {stage.stumble_rate:.0%} of the turns random and not "
        f"imitated, and a look back before {stage.look_back_rate:.0%} of the corners, imitated; cut at "
        f"{stage.max_turns} turns; {stage.anywhere_rate:.0%} of the walks start on any free cell{asked}"
    )
