"""The project's own tiny Qwen3-VL: built from nothing and fine-tuned on oracle walks."""
