"""Mazes as the rows that SkyRL reads. Rows are tickets: a seed and how to play it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from rl.settings import DataSettings


def write_rows(path: Path, seeds: Iterable[int], settings: DataSettings, source: str) -> None:
    """Write one parquet row per seed in the layout of SkyRL's PromptDataset.

    The prompt is a placeholder that passes SkyRL's length filter; the environment writes the real one.
    """
    maze = settings.maze.model_dump_json()
    rows: Sequence[dict[str, object]] = [
        {
            "prompt": [{"role": "user", "content": "maze"}],
            "env_class": "maze_2d",
            "data_source": source,
            "seed": seed,
            "maze": maze,
            "parsing": settings.parsing,
        }
        for seed in seeds
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(path)
