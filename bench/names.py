"""What bench/side.py, in the training environment, says to bench/grpo.py, in the orchestrator's."""

FIRST_ROLLOUT = "first rollout"
"""Everything has started and the first request goes out."""
