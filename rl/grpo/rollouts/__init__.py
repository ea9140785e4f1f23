"""Episodes against the engine: every token rendered once, every picture sent once."""
