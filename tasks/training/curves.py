"""What a run's own page in MLflow shows over training steps, under names of this project's that stay the same. Pure.

The attempts' runs keep every number by SkyRL's names; these are the few by which runs are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scipy.stats import binomtest

from rl.maze.grid import turns_needed
from rl.maze.score import EvalReport
from rl.maze.sources import maze_for
from rl.maze.walks import behaviour, ending_of, turns_of

STEP_CURVES = {
    "reward/avg_raw_reward": "train/reward",
    "rollouts/solve_rate": "train/solve_rate",
    "rollouts/groups_without_signal": "train/groups_without_signal",
    "rollouts/unparsable_replies": "train/unparsable_replies",
    "generate/avg_assistant_tokens": "train/tokens_per_episode",
    "generate/tokens_per_turn_mean": "train/tokens_per_reply",
    "environment/num_turns": "train/mean_turns",
    "policy/policy_kl": "train/kl",
    "policy/minibatch_rollout_logprobs_abs_diff_mean": "train/policy_drift",
    "policy/rollout_train_logprobs_abs_diff_mean": "train/engine_mismatch",
    "policy/policy_entropy": "train/entropy",
    "policy/loss_metrics/clip_ratio": "train/clip_ratio",
    "policy/grad_norm": "train/grad_norm",
    "policy/final_loss": "train/loss",
    "policy/policy_lr": "train/learning_rate",
    "timing/step": "time/step_s",
    "timing/generate": "time/rollouts_s",
    "timing/fwd_logprobs_values_reward": "time/log_probabilities_s",
    "timing/train_critic_and_policy": "time/update_s",
    "timing/sync_weights": "time/weights_to_the_engine_s",
    "timing/eval": "time/evaluation_s",
    "timing/save_checkpoints": "time/checkpoint_s",
    "trainer/tokens_per_second_per_gpu": "time/tokens_per_second_per_gpu",
}
"""SkyRL's name of a step's number -> its name on the run's own page."""
WHOLE_STEP = ("timing/step", "timing/eval", "timing/save_checkpoints")
"""Parts that do not overlap and make a step's whole time."""
EPISODES = "episodes"
"""Folder of tables with one row a maze, among the run's artifacts."""
TRAINING_HOURS, GPU_HOURS = "cost/training_hours", "cost/gpu_hours"


def step_curves(values: Mapping[str, float]) -> dict[str, float]:
    """Those of a step's numbers that have a curve."""
    return {ours: values[theirs] for theirs, ours in STEP_CURVES.items() if theirs in values}


def evaluation_curves(report: EvalReport) -> dict[str, float]:
    """Solve rate with its 95% Wilson interval, and what the model did, in counts."""
    interval = binomtest(report.num_solved, report.num_mazes).proportion_ci(0.95, method="wilson")
    mazes = [maze_for(outcome.seed, report.rules.maze) for outcome in report.outcomes]
    did = behaviour(mazes, report.outcomes, report.rules.max_turns)
    return {
        **report.metrics(),
        "eval/solve_rate_low": round(float(interval.low), 4),
        "eval/solve_rate_high": round(float(interval.high), 4),
        "eval/stopped_elsewhere": did.wrong_stops,
        "eval/out_of_turns": did.out_of_turns,
        "eval/cut_off": did.cut_off,
        "eval/turned_back": did.turned_back,
        "eval/hit_walls": did.hit_walls,
    }


def episode_rows(report: EvalReport) -> list[dict[str, Any]]:
    """One row a maze: what it asks, what was done, how it ended."""
    rows = []
    for outcome in report.outcomes:
        maze = maze_for(outcome.seed, report.rules.maze)
        turns = turns_of(maze, outcome)
        rows.append(
            {
                "seed": outcome.seed,
                # MLflow compares two runs' tables by the second column, until somebody chooses another.
                "ending": str(ending_of(outcome, report.rules.max_turns)),
                "turns_needed": turns_needed(maze),
                "turns": outcome.num_turns,
                "hit_walls": sum(turn.hit_wall for turn in turns),
                "turned_back": sum(turn.turned_back for turn in turns),
                "unparsable_replies": outcome.unparsable_replies,
                "walk": outcome.actions,
                "model": report.model_id,
                "step": report.step,
            }
        )
    return rows


def hours_spent(numbers: Mapping[int, Mapping[str, float]], step: int, num_gpus: int) -> dict[str, float]:
    """What led to ``step`` took, in hours, and in hours of a GPU where there are some."""
    seconds = sum(values.get(name, 0.0) for at, values in numbers.items() if at <= step for name in WHOLE_STEP)
    hours = {TRAINING_HOURS: seconds / 3600}
    return {**hours, GPU_HOURS: num_gpus * seconds / 3600} if num_gpus else hours
