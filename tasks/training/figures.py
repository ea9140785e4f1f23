"""Numbers of a training step by the names that the job gives them. Pure."""

from __future__ import annotations

TIMES = {
    "timing/generate": "rollouts",
    "timing/fwd_logprobs_values_reward": "log-probabilities",
    "timing/train_critic_and_policy": "update",
    "timing/sync_weights": "weights to the engine",
}
"""Parts of a training step, as SkyRL names them -> what they are called."""
STEP, AFTER = "timing/step", {"timing/eval": "evaluation", "timing/save_checkpoints": "checkpoint"}
"""The whole step, and what comes after some steps."""
REWARD, SOLVE_RATE = "reward/avg_raw_reward", "rollouts/solve_rate"
"""Of the step's rollouts."""
CURVES = (*TIMES, STEP, *AFTER, REWARD)
"""Numbers of a step that a run's pictures show."""
