"""SkyRL's GRPO experiment with this project's parts in its hooks: data, generator, tracker, trainer.

prompts -> MazeGenerator (vLLM engines) -> rewards -> GRPO advantages -> FSDP policy -> LoRA by disk -> engines
                 ^ evaluation before training and every eval_interval steps                      |
                 +-------------------------------------------------------------------------------+
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import vllm
from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.dataset import PromptDataset
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils.trainer_utils import cleanup_old_checkpoints

from rl.events import Evaluated, EventLog, Fault, Metrics, Progress, Rollouts, Saved
from rl.grpo.checkpoints import adapter_digests, mark_whole, unmark, what_is_wrong
from rl.grpo.faults import in_one_line
from rl.grpo.length_groups import length_grouped
from rl.grpo.rollouts.generator import MazeGenerator
from rl.grpo.rollouts.sample import sample
from rl.grpo.skyrl_env import register_env
from rl.maze.run_mazes import Mazes
from rl.maze.score import Conditions, EvalReport, EvalRules, Outcome, make_report


class EvaluationDisagrees(RuntimeError):
    """The trainer's pass rate and the solve rate counted from outcomes are not the same."""


class EventTracker:
    """Stands in for SkyRL's Tracking: every logged number becomes an event, MLflow is the orchestrator's."""

    def __init__(self, log: EventLog, total_steps: int) -> None:
        self._log = log
        self._total_steps = total_steps
        self._left_out: set[str] = set()

    def log(self, data: dict[str, Any], step: int, commit: bool = False) -> None:
        values = {key: number for key, value in data.items() if (number := as_number(value)) is not None}
        if left_out := {key: type(data[key]).__name__ for key in data.keys() - values.keys() - self._left_out}:
            self._left_out |= left_out.keys()
            self._log.emit(
                Fault(boundary="training", message=f"step {step}: no numbers, left out from here on: {left_out}")
            )
        odd = {key: value for key, value in values.items() if not math.isfinite(value)}
        if odd:
            # JSON knows neither NaN nor infinity, and whoever reads the log should hear of them by name.
            self._log.emit(Fault(boundary="training", message=f"step {step}: not finite: {odd}"))
        self._log.emit(Metrics(step=step, values={key: values[key] for key in values.keys() - odd.keys()}))
        reward = values.get("reward/avg_raw_reward")
        text = "base evaluated" if reward is None else f"mean reward {reward:.3f}"
        self._log.emit(Progress(done=step, total=self._total_steps, text=text))

    def log_exception(self, exception: BaseException, step: int) -> None:
        self._log.emit(Fault(boundary="training", message=f"step {step}: {in_one_line(exception)}", fatal=True))

    def finish(self) -> None:
        """Nothing is held open."""


def share_without_signal(outcomes: Sequence[Outcome]) -> float:
    """Share of mazes whose rollouts all ended alike: their advantages are zero, and nothing is learned from them."""
    endings: dict[int, set[bool]] = {}
    for outcome in outcomes:
        endings.setdefault(outcome.seed, set()).add(outcome.solved)
    return sum(len(found) == 1 for found in endings.values()) / len(endings)


def as_number(value: Any) -> float | None:
    """Numbers of Python and numpy, arrays and tensors of one element; None for everything else."""
    if isinstance(value, np.generic | np.ndarray | torch.Tensor) and math.prod(value.shape) == 1:
        value = value.item()
    return float(value) if isinstance(value, Real) else None


class MazeTrainer(RayPPOTrainer):
    """RayPPOTrainer that reports evaluations by maze and says what it saved."""

    generator: MazeGenerator

    def __init__(self, *args: Any, log: EventLog, mazes: Mazes, policy_worker: type, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._log = log
        self._mazes = mazes
        self._policy_worker = policy_worker
        self._resumed_step: int | None = None

    def build_models(self, PolicyWorker: Any, CriticWorker: Any, RefWorker: Any) -> None:  # noqa: N803 - SkyRL's names
        super().build_models(ray.remote(num_gpus=1)(self._policy_worker), CriticWorker, RefWorker)

    async def generate(self, input_batch: Any) -> Any:
        output = await super().generate(input_batch)
        solved = [outcome.solved for outcome in self.generator.outcomes]
        self.all_metrics |= {
            "rollouts/solve_rate": sum(solved) / len(solved),
            "rollouts/trajectories": len(solved),
            "rollouts/unparsable_replies": sum(o.unparsable_replies for o in self.generator.outcomes),
            "rollouts/dropped_trajectories": self.generator.num_dropped,
            "rollouts/groups_without_signal": share_without_signal(self.generator.outcomes),
        }
        return output

    def compute_advantages_and_returns(self, data: Any) -> Any:
        """SkyRL's; some of the episodes are told with their rewards and advantages."""
        rewards = data["rewards"].sum(dim=-1).tolist()
        data = super().compute_advantages_and_returns(data)
        try:
            self._log.emit(sample_of(self.global_step, self.generator.outcomes, rewards, data))
        except Exception as error:
            # What is only to be read ends no training, whatever is wrong with it.
            self._log.emit(Fault(boundary="rollouts", message=f"step {self.global_step}: not told: {error!r}"))
        return data

    async def eval(self, vllm_metrics_scraper: Any = None) -> dict[str, float]:
        metrics = await super().eval(vllm_metrics_scraper)
        seeds = [maze.seed for maze in self._mazes.eval_set.mazes]
        model_id = str(self.generator.policy_model_name)
        rules, conditions = eval_rules(self.cfg, self._mazes), eval_conditions(self.cfg, len(seeds))
        report = make_report(self.global_step, rules, model_id, seeds, self.generator.outcomes, conditions)
        _check_against_trainer(report, metrics)
        self._log.emit(Evaluated(report=report.with_fewer_words()))
        return {**metrics, **report.metrics()}

    def load_checkpoints(self) -> tuple[int, str]:
        """Go on from a checkpoint; an export of its step that a crash kept from being written is made up for."""
        step, path = super().load_checkpoints()
        self.global_step = self._resumed_step = step
        if what_is_wrong(self._export_folder()):
            self._export()
        elif "export" not in self._log.earlier().kinds_of(step):
            self._tell_export()
        if step >= (self.cfg.trainer.max_training_steps or step + 1):
            # Killed after its last checkpoint: it is evaluated, and SkyRL, which asks after a step, takes none.
            self.cfg.trainer.epochs = 0
        return step, path

    def save_checkpoints(self) -> str:
        folder = Path(self.cfg.trainer.ckpt_path) / f"global_step_{self.global_step}"
        if self.global_step == self._resumed_step:
            return str(folder)
        unmark(folder)
        super().save_checkpoints()
        self._log.emit(Saved(kind="checkpoint", step=self.global_step, path=str(folder), sha256={}))
        return str(folder)

    def _cleanup_old_checkpoints(self) -> None:
        # The new one counts before an old one goes.
        self.dispatch.finalize_pending_saves("policy")
        mark_whole(Path(self.cfg.trainer.ckpt_path) / f"global_step_{self.global_step}")
        # Checkpoints lie on one shared file system: SkyRL would start a worker on every node to delete them.
        cleanup_old_checkpoints(self.cfg.trainer.ckpt_path, self.cfg.trainer.max_ckpts_to_keep)

    async def train(self) -> None:
        try:
            await super().train()
        finally:
            await self.generator.aclose()

    def save_models(self) -> None:
        if self.global_step != self._resumed_step:
            self._export()

    def _export(self) -> None:
        unmark(self._export_folder())
        super().save_models()
        mark_whole(self._export_folder())
        self._tell_export()

    def _tell_export(self) -> None:
        folder = self._export_folder()
        self._log.emit(Saved(kind="export", step=self.global_step, path=str(folder), sha256=adapter_digests(folder)))

    def _export_folder(self) -> Path:
        return Path(self.cfg.trainer.export_path) / f"global_step_{self.global_step}" / "policy"


def sample_of(step: int, outcomes: Sequence[Outcome], rewards: Sequence[float], data: Any) -> Rollouts:
    """Some of a batch's episodes; SkyRL may have filled the batch up behind them (``pad_size``)."""
    num_real = len(rewards) - data.metadata.get("pad_size", 0)
    return sample(step, outcomes, rewards[:num_real], [first_advantage(data, row) for row in range(num_real)])


def first_advantage(data: Any, row: int) -> float | None:
    """What GRPO gives to every token of an episode that counts."""
    counted = data["loss_mask"][row].nonzero()
    return float(data["advantages"][row, counted[0].item()]) if len(counted) else None


def eval_rules(cfg: Any, mazes: Mazes) -> EvalRules:
    """How SkyRL, configured like this, plays the evaluation mazes."""
    data, sampling = mazes.data, cfg.generator.eval_sampling_params
    return EvalRules(
        eval_set_sha256=mazes.eval_set.sha256,
        maze=data.maze,
        max_turns=cfg.generator.max_turns,
        parsing=data.parsing,
        max_reply_tokens=sampling.max_generate_length,
        temperature=sampling.temperature,
    )


def eval_conditions(cfg: Any, num_mazes: int) -> Conditions:
    """In what SkyRL, configured like this, plays them: all of a batch at a time."""
    engine = cfg.generator.inference_engine
    names = ("model_dtype", "max_num_seqs", "max_num_batched_tokens", "num_engines", "enforce_eager")
    return Conditions(
        num_concurrent=min(num_mazes, cfg.trainer.eval_batch_size),
        engine={name: getattr(engine, name) for name in names} | dict(engine.engine_init_kwargs),
        software=f"vllm {vllm.__version__}",
    )


def _check_against_trainer(report: EvalReport, metrics: dict[str, float]) -> None:
    """SkyRL counts any reward above 0 as a pass; with a task-only reward both must agree."""
    trainers = metrics["eval/all/pass_at_1"]
    if abs(trainers - report.solve_rate) > 1e-9:
        raise EvaluationDisagrees(
            f"step {report.step}: the trainer says pass@1 {trainers:.4f}, outcomes say {report.num_solved} of "
            f"{report.num_mazes} solved; the reward is shaped or the outcomes belong to another batch"
        )


class MazeExperiment(BasePPOExp):
    """Names the parts; SkyRL puts them together."""

    def __init__(self, cfg: SkyRLTrainConfig, mazes: Mazes, log: EventLog, policy_worker: type) -> None:
        register_env()
        self._mazes = mazes
        self._log = log
        self._policy_worker = policy_worker
        super().__init__(cfg)

    def get_train_dataset(self) -> PromptDataset:
        return self._rows(self.cfg.data.train_data)

    def get_eval_dataset(self) -> PromptDataset:
        return self._rows(self.cfg.data.val_data)

    def _rows(self, files: list[str]) -> PromptDataset:
        # SkyRL's default of 8 readers starts 8 Python processes for a handful of rows; 0 reads them in this one.
        tokenizer: Any = self.tokenizer
        return PromptDataset(files, tokenizer, self.cfg.trainer.max_prompt_length, num_workers=0)

    def get_generator(self, cfg: SkyRLTrainConfig, tokenizer: Any, inference_engine_client: Any) -> MazeGenerator:
        return MazeGenerator(
            generator_cfg=cfg.generator,
            skyrl_gym_cfg=cfg.environment.skyrl_gym,
            inference_engine_client=inference_engine_client,
            tokenizer=tokenizer,
            policy_model_name=resolve_policy_model_name(cfg),
        )

    def get_tracker(self) -> EventTracker:  # type: ignore[override]
        return EventTracker(self._log, self.cfg.trainer.max_training_steps or 0)

    def get_trainer(self, **parts: Any) -> MazeTrainer:  # type: ignore[override]
        return MazeTrainer(**parts, **self.trainer_parts())

    def trainer_parts(self) -> dict[str, Any]:
        """What MazeTrainer takes beyond SkyRL's own parts."""
        return {"log": self._log, "mazes": self._mazes, "policy_worker": length_grouped(self._policy_worker)}
