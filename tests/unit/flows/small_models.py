"""The small world's mazes, its base model and export, and the model that plays them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from rl.maze.episode import Episode
from rl.maze.eval_set import EvalSet, load_eval_set, write_eval_set
from rl.maze.grid import Direction, generate_maze, shortest_path
from rl.maze.prompts import Move, Stop, action_text
from rl.maze.run_mazes import prepare_mazes
from rl.maze.score import EvalReport, EvalRules, Outcome, make_report
from rl.settings import DataSettings, MazeSettings
from serving.adapter import file_sha256

STOPS = action_text(Stop())
MODULE = "model.language_model.layers.0.self_attn.q_proj"
LOGPROBS = {"base": -0.5, "adapter": -0.25}


def two_mazes(folder: Path, whole: Path = Path("rl/eval_sets/maze_2d_7x9.json")) -> tuple[Path, EvalSet]:
    """An evaluation set of the two mazes with the shortest ways."""
    eval_set = load_eval_set(whole)
    shortest = sorted(eval_set.mazes, key=lambda maze: (maze.turns_needed, maze.seed))[:2]
    small = eval_set.model_copy(update={"mazes": tuple(shortest)})
    write_eval_set(small, folder / "two.json")
    return folder / "two.json", small


def base_model(folder: Path) -> Path:
    """A base of one matrix."""
    folder.mkdir()
    save_file({f"{MODULE}.weight": np.ones((6, 4), np.float32)}, folder / "model.safetensors")
    return folder


def export(folder: Path) -> dict[str, str]:
    """An adapter of that base, as training exports one; file name -> digest."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    sides = {"A": np.ones((2, 4), np.float32), "B": np.ones((6, 2), np.float32)}
    tensors = {f"base_model.model.{MODULE}.lora_{side}.weight": tensor for side, tensor in sides.items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    return {path.name: file_sha256(path) for path in sorted(folder.iterdir())}


class Player:
    """The base stops at once; the adapter knows the way of every picture that lies on one."""

    def __init__(self, eval_set: EvalSet, maze: MazeSettings, max_turns: int) -> None:
        self.ways: dict[str, str] = {}
        self._maze, self._max_turns = maze, max_turns
        self.outcomes = self.learn(eval_set)

    def learn(self, mazes: EvalSet) -> dict[str, list[Outcome]]:
        """The ways of these mazes; what base and adapter make of them."""
        outcomes: dict[str, list[Outcome]] = {"base": [], "adapter": []}
        for row in mazes.mazes:
            moves = shortest_path(generate_maze(row.seed, self._maze.height, self._maze.width))
            replies = [*(action_text(Move(move)) for move in moves), STOPS]
            for who, said in (("adapter", replies), ("base", [STOPS])):
                episode = Episode(row.seed, self._maze, "tolerant", self._max_turns)
                seen = episode.start()
                for reply in said:
                    if who == "adapter":
                        self.ways[base64.b64encode(seen.png).decode()] = reply
                    if not seen.done:
                        seen = episode.step(reply)
                outcomes[who].append(episode.outcome())
                episode.close()
        return outcomes

    def reply(self, who: str, messages: list[Any]) -> str:
        if who == "base":
            return STOPS
        picture = next(part for part in messages[-1]["content"] if part["type"] == "image_url")
        return self.ways.get(picture["image_url"]["url"].partition(",")[2], action_text(Move(Direction(0))))

    def report(self, who: str, step: int, data: DataSettings, max_reply_tokens: int) -> EvalReport:
        eval_set = prepare_mazes(data).eval_set
        seeds = [row.seed for row in eval_set.mazes]
        rules = EvalRules(
            eval_set_sha256=eval_set.sha256,
            maze=data.maze,
            max_turns=data.max_turns,
            parsing=data.parsing,
            max_reply_tokens=max_reply_tokens,
            temperature=0.0,
        )
        return make_report(step, rules, "policy", seeds, self.outcomes[who])
