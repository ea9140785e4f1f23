"""From mazes to the best step: data, the GRPO job, the choice."""
