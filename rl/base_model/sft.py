"""Process entry point: build the tiny base model and fine-tune it (``python -m rl.base_model.sft``).

It plays the part of the VisGym SFT checkpoint. Deterministic for one seed, machine and thread count: weights,
mazes and their order come from the seed, and CPU kernels of one build repeat themselves. Every stage starts from
weights alone, so a run that was interrupted goes on after its last whole stage and ends with the same bytes.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from rl.base_model.build import build_model, build_processor
from rl.base_model.card import save
from rl.base_model.decision import DecisionHead
from rl.base_model.perception import PerceptionHead, snapshots
from rl.base_model.play import MAX_REPLY_TOKENS, PARSING, play_greedily
from rl.base_model.settings import BaseModelSettings, SightStage, WalkStage
from rl.base_model.walks import EpisodeEncoder, Turn, Walker, training_mazes, walk, walk_batches
from rl.events import Evaluated, EventLog, Metrics, Progress
from rl.maze.eval_set import EvalSet, load_eval_set
from rl.maze.grid import Maze
from rl.maze.score import GREEDY, EvalReport, EvalRules, make_report
from rl.output import clean_output

WARMUP_STEPS = 20
Losses = dict[str, torch.Tensor]
"""``loss`` is minimised; what else it holds is reported."""


def learning_rate(step: int, num_steps: int, peak: float) -> float:
    """Linear warm-up, then half a cosine down to a tenth of the peak."""
    if step < WARMUP_STEPS:
        return peak * (step + 1) / WARMUP_STEPS
    progress = (step - WARMUP_STEPS) / max(1, num_steps - WARMUP_STEPS)
    return peak * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def fine_tune(settings: BaseModelSettings, log: EventLog) -> EvalReport:
    """Run all stages, save model, processor and card; returns the final evaluation."""
    eval_set = load_eval_set(Path(settings.eval_manifest))
    trainer = SftTrainer(settings, set(eval_set.fingerprints), log)
    trainer.run()
    return trainer.evaluate_and_save(eval_set)


class SftTrainer:
    """The model under training and the count of its steps over all stages."""

    def __init__(self, settings: BaseModelSettings, held_out: set[str], log: EventLog) -> None:
        self._settings, self._held_out, self._log = settings, held_out, log
        self.processor: Any = build_processor()
        self.model: Any = build_model(self.processor, settings.seed)
        self._perceive = PerceptionHead(self.model)
        self._encode = EpisodeEncoder(self.processor)
        self._total = settings.sight.num_steps + sum(stage.num_steps for stage in settings.walks)
        self._step = 0

    def run(self) -> None:
        """Run every stage, or load what an earlier run of the same recipe left behind it."""
        stages: list[SightStage | WalkStage] = [self._settings.sight, *self._settings.walks]
        trained = torch.nn.ModuleList([self.model, self._perceive])
        for number, stage in enumerate(stages):
            snapshot = self._snapshot_path(number)
            if snapshot.exists():
                trained.load_state_dict(torch.load(snapshot, weights_only=True))
                self._step += stage.num_steps
                continue
            if isinstance(stage, SightStage):
                self._learn_to_see(stage)
            else:
                self._learn_to_walk(number, stage)
            snapshot.parent.mkdir(parents=True, exist_ok=True)
            torch.save(trained.state_dict(), snapshot)

    def _snapshot_path(self, number: int) -> Path:
        """Named by everything that decides the weights after this stage, but for the code."""
        settings = self._settings
        recipe = settings.model_copy(update={"walks": settings.walks[:number], "output_dir": ""})
        digest = hashlib.sha256(recipe.model_dump_json().encode()).hexdigest()[:12]
        return Path(settings.output_dir) / "stages" / f"{number}-{digest}.pt"

    def _learn_to_see(self, stage: SightStage) -> None:
        tower = self.model.model.visual
        pictures = snapshots(self._mazes(0), self._settings.maze.cell_px, np.random.default_rng(self._settings.seed))

        def losses(batch: Sequence[np.ndarray]) -> Losses:
            images = [Image.fromarray(picture) for picture in batch]
            features = self.processor.image_processor(images, return_tensors="pt")
            tower(features["pixel_values"], grid_thw=features["image_grid_thw"])
            loss, way_accuracy = self._perceive(batch)
            return {"loss": loss, "perception_loss": loss, "way_accuracy": way_accuracy}

        batches = (list(islice(pictures, stage.pictures_per_step)) for _ in range(stage.num_steps))
        self._optimise([*tower.parameters(), *self._perceive.parameters()], stage, batches, losses)

    def _learn_to_walk(self, number: int, stage: WalkStage) -> None:
        torch.manual_seed(self._settings.seed + number)
        decide = DecisionHead(self.processor.tokenizer, self.model.config.text_config.hidden_size)

        def losses(episodes: Sequence[Sequence[Turn]]) -> Losses:
            batch = self._encode(episodes)
            output = self.model(**batch, output_hidden_states=True)
            seen, way_accuracy = self._perceive([turn.image for episode in episodes for turn in episode])
            decided, stop_accuracy = decide(output.hidden_states[-1], batch["labels"])
            return {
                "loss": output.loss + seen + stage.decision_loss_weight * decided,
                "reply_loss": output.loss,
                "perception_loss": seen,
                "way_accuracy": way_accuracy,
                "decision_loss": decided,
                "stop_accuracy": stop_accuracy,
            }

        batches = islice(walk_batches(self._walks(number, stage), stage.episodes_per_step), stage.num_steps)
        parameters = [*self.model.parameters(), *self._perceive.parameters(), *decide.parameters()]
        self._optimise(parameters, stage, batches, losses)

    def _mazes(self, number: int) -> Iterator[Maze]:
        settings = self._settings
        return training_mazes(settings.maze, settings.seed + 1000 * number, self._held_out, settings.max_turns)

    def _walks(self, number: int, stage: WalkStage) -> Iterator[list[Turn]]:
        rng = np.random.default_rng(self._settings.seed + 1000 * number)
        walker = Walker(stage.stumble_rate, stage.look_back_rate, stage.anywhere_rate)
        for maze in self._mazes(number):
            yield walk(maze, self._settings.maze.cell_px, rng, walker, stage.max_turns)

    def _optimise(
        self,
        parameters: list[Any],
        stage: SightStage | WalkStage,
        batches: Iterator[Any],
        losses: Callable[..., Losses],
    ) -> None:
        """Take a step on every batch and report it."""
        optimizer = torch.optim.AdamW(parameters, betas=(0.9, 0.95), weight_decay=0.01)
        self.model.train()
        for step, batch in enumerate(batches):
            started = time.perf_counter()
            rate = learning_rate(step, stage.num_steps, stage.peak_learning_rate)
            for group in optimizer.param_groups:
                group["lr"] = rate
            found = losses(batch)
            found["loss"].backward()
            norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            self._step += 1
            values = {f"sft/{name}": float(value) for name, value in found.items() if name != "loss"}
            more = {"grad_norm": float(norm), "learning_rate": rate, "step_s": time.perf_counter() - started}
            self._log.emit(
                Metrics(step=self._step, values=values | {f"sft/{name}": value for name, value in more.items()})
            )
            text = ", ".join(f"{name} {float(value):.4f}" for name, value in found.items() if name != "loss")
            self._log.emit(Progress(done=self._step, total=self._total, text=text))

    def evaluate_and_save(self, eval_set: EvalSet) -> EvalReport:
        """Play the held-out mazes greedily and write the model with a card that says how it did."""
        settings = self._settings
        seeds = [maze.seed for maze in eval_set.mazes]
        played = play_greedily(self.model.eval(), self.processor, settings.maze, seeds, settings.max_turns)
        rules = EvalRules(
            eval_set_sha256=eval_set.sha256,
            maze=settings.maze,
            max_turns=settings.max_turns,
            parsing=PARSING,
            max_reply_tokens=MAX_REPLY_TOKENS,
            temperature=GREEDY,
        )
        report = make_report(self._step, rules, "sft", seeds, played)
        self._log.emit(Evaluated(report=report))
        save(self.model, self.processor, settings, report)
        return report


def main(argv: list[str]) -> None:
    settings = BaseModelSettings.model_validate_json(argv[1])
    fine_tune(settings, EventLog(Path(settings.output_dir) / "events.jsonl"))


if __name__ == "__main__":
    clean_output()
    main(sys.argv)
