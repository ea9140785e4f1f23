"""What a run leaves behind, what it costs, and away with it."""
