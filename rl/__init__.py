"""The reinforcement-learning half: mazes, environment, evaluation, base model, GRPO entry point.

Axis letters in names: P mazes (prompts), G rollouts per maze, T tokens, N images, H rows, W columns.
Positions are (row, column) in grid cells; colours are 8-bit RGB.
"""
