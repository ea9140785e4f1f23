"""The stages of a run, a room each; see docs/architecture.md."""
