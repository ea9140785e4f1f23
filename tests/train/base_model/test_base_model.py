"""The tiny base model: what is shipped, what building it again gives, and what LoRA adapts in it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from PIL import Image
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration

from rl.base_model.build import build_model, build_processor
from rl.base_model.decision import NUM_ACTIONS, DecisionHead
from rl.base_model.perception import cell_labels
from rl.base_model.play import play_greedily
from rl.base_model.settings import BaseModelSettings
from rl.base_model.sft import SftTrainer, learning_rate
from rl.base_model.walks import EpisodeEncoder, Walker, oracle_walk, training_mazes, walk, walk_batches
from rl.events import EventLog
from rl.grpo.settings import LoraSettings
from rl.maze.eval_set import load_eval_set
from rl.maze.grid import Direction, generate_maze, shortest_path
from rl.maze.pictures import render
from rl.maze.prompts import Move, Stop, action_text
from rl.settings import MazeSettings
from tests.train.conftest import BASE_MODEL, MANIFEST
from tests.train.float_bounds import FAULT, gamma

pytestmark = pytest.mark.slow_s(25)


def test_the_shipped_model_is_small_and_has_a_card() -> None:
    size_bytes = sum(path.stat().st_size for path in BASE_MODEL.rglob("*"))
    assert size_bytes <= 8_000_000
    card = (BASE_MODEL / "README.md").read_text()
    assert "held-out mazes solved" in card
    assert "look back before" in card


def test_the_shipped_processor_is_the_one_that_is_built() -> None:
    shipped, built = AutoProcessor.from_pretrained(BASE_MODEL), build_processor()
    assert shipped.tokenizer.get_vocab() == built.tokenizer.get_vocab()
    assert shipped.chat_template == built.chat_template
    assert type(shipped).__name__ == "Qwen3VLProcessor"


def test_equal_seeds_build_equal_models() -> None:
    processor = build_processor()
    first, second, other = (build_model(processor, seed).state_dict() for seed in (1, 1, 2))
    # To the bit: weights are drawn one by one, nothing is added up.
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_training_batches_hold_exactly_the_tokens_that_the_engine_sees() -> None:
    processor: Any = build_processor()
    walk = oracle_walk(generate_maze(3, 7, 9), 8)
    batch = EpisodeEncoder(processor)([walk])
    messages = []
    for turn in walk:
        image = {"type": "image", "image": Image.fromarray(turn.image)}
        messages.append({"role": "user", "content": [{"type": "text", "text": turn.text}, image]})
        messages.append({"role": "assistant", "content": turn.reply})
    rendered = processor.apply_chat_template(messages, tokenize=True, return_dict=True, return_tensors="pt")
    # The template ends with a line feed after the last turn, which nobody generates.
    assert batch["input_ids"][0].tolist() == rendered["input_ids"][0].tolist()[:-1]
    # To the bit, in a batch of any size: each pixel is rounded on its own, never added to another.
    assert torch.equal(batch["pixel_values"], rendered["pixel_values"])
    learned = batch["input_ids"][batch["labels"] != -100]
    assert processor.tokenizer.decode(learned) == "".join(f"{turn.reply}<|im_end|>" for turn in walk)


def test_training_walks_leave_the_evaluation_mazes_out_and_need_no_padding() -> None:
    held_out = load_eval_set(MANIFEST).fingerprints
    mazes = training_mazes(MazeSettings(), 0, set(held_out), max_turns=15)
    seen = [next(mazes) for _ in range(200)]
    assert held_out.isdisjoint(maze.fingerprint for maze in seen)
    batch = next(walk_batches(iter([oracle_walk(maze, 8) for maze in seen]), 4))
    assert len({len(walk) for walk in batch}) == 1
    assert EpisodeEncoder(build_processor())(batch)["attention_mask"].all()


def test_a_turn_limit_that_no_maze_keeps_ends_the_drawing() -> None:
    with pytest.raises(ValueError, match="of 10000 mazes of 7x9 none can be solved within 2 turns"):
        next(training_mazes(MazeSettings(), 0, set(), max_turns=2))


def test_a_stumble_stands_in_the_history_and_is_not_imitated() -> None:
    stumbling = Walker(stumble_rate=0.4)
    turns = walk(generate_maze(3, 7, 9), 8, np.random.default_rng(5), stumbling, max_turns=15)
    assert 0 < sum(not turn.learned for turn in turns) < len(turns) <= 15
    batch = EpisodeEncoder(build_processor())([turns])
    learned = batch["input_ids"][batch["labels"] != -100]
    wanted = "".join(f"{turn.reply}<|im_end|>" for turn in turns if turn.learned)
    assert build_processor().tokenizer.decode(learned) == wanted


@pytest.mark.parametrize("seed", range(5))
def test_looking_back_costs_two_turns_at_every_corner_and_is_imitated(seed: int) -> None:
    maze = generate_maze(seed, 7, 9)
    path = shortest_path(maze)
    corners = sum(before != after for before, after in pairwise(path))
    turns = walk(maze, 8, np.random.default_rng(0), Walker(look_back_rate=1.0), max_turns=100)
    assert len(turns) == len(path) + 1 + 2 * corners
    assert all(turn.learned for turn in turns)
    assert turns[-1].reply == action_text(Stop())


def test_every_visual_token_is_labelled_from_the_picture() -> None:
    maze = generate_maze(3, 7, 9)
    labels = cell_labels(render(maze, maze.start, 8))
    content, free, way = labels.content.reshape(7, 9), labels.free.reshape(7, 9, 4), labels.way.reshape(7, 9)
    assert content[maze.start] == 3
    assert content[maze.target] == 2
    assert (content == 0).tolist() == maze.wall_HW.tolist()
    assert {direction for direction in Direction if free[maze.start][direction]} == {
        direction for direction, _ in maze.neighbours(maze.start)
    }
    assert way[maze.target] == 4
    assert ((way == -100) == maze.wall_HW).all()
    for cell in map(tuple, np.argwhere(~maze.wall_HW)):
        assert cell == maze.target or way[cell] == shortest_path(maze, cell)[0]


def test_the_decision_head_is_asked_for_the_action_of_every_learned_reply() -> None:
    processor: Any = build_processor()
    turns = walk(generate_maze(3, 7, 9), 8, np.random.default_rng(5), Walker(stumble_rate=0.3), max_turns=40)
    batch = EpisodeEncoder(processor)([turns])
    decide = DecisionHead(processor.tokenizer, hidden_size=5)
    actions = [action_text(action) for action in (*map(Move, Direction), Stop())]
    learned = torch.tensor([actions.index(turn.reply) for turn in turns if turn.learned])
    starts = (batch["labels"][0, 1:] != -100) & (batch["labels"][0, :-1] == -100)
    hidden = torch.zeros(1, batch["labels"].shape[1], 5)
    hidden[0, :-1][starts] = 50.0 * torch.nn.functional.one_hot(learned, 5).float()
    with torch.no_grad():
        decide.read.weight.copy_(torch.eye(5))
        decide.read.bias.zero_()
        loss, stop_accuracy = decide(hidden, batch["labels"])
        too_late, _ = decide(hidden.roll(-1, dims=1), batch["labels"])
    # log(1 + 4 exp(-50)) is nothing. What is left is the rounding of that sum, which is 1: of five exponentials, the
    # five additions, and the logarithm.
    nothing = gamma(2 * NUM_ACTIONS + 1)
    assert float(loss) <= nothing, "the right action at every position costs nothing"
    assert float(too_late) >= FAULT * nothing
    assert float(stop_accuracy) == 1.0


TINY = {
    "maze": {"height": 5, "width": 5},
    "eval_manifest": str(MANIFEST),
    "sight": {"num_steps": 1, "peak_learning_rate": 1e-3, "pictures_per_step": 2},
    "walks": [{"num_steps": 1, "peak_learning_rate": 1e-3, "episodes_per_step": 1, "look_back_rate": 0.5}] * 2,
}


def test_an_interrupted_fine_tuning_goes_on_after_its_last_stage_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    def trained(folder: str) -> dict[str, torch.Tensor]:
        settings = BaseModelSettings.model_validate({**TINY, "output_dir": str(tmp_path / folder)})
        trainer = SftTrainer(settings, set(), EventLog(tmp_path / folder / "events.jsonl"))
        trainer.run()
        return trainer.model.state_dict()

    whole = trained("whole")
    trained("interrupted")
    max((tmp_path / "interrupted" / "stages").iterdir()).unlink()
    resumed = trained("interrupted")
    # To the bit: the same process takes the same kernels for the same shapes, with as many threads.
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "interrupted" / "events.jsonl").read_text().splitlines()]
    assert kinds.count("progress") == 4, "three stages, and the last of them again"


def test_the_learning_rate_warms_up_and_falls() -> None:
    rates = [learning_rate(step, 100, 1.0) for step in range(100)]
    assert rates[0] == pytest.approx(0.05)
    assert max(rates) == 1.0
    assert rates[-1] == pytest.approx(0.1, abs=0.01)


def test_lora_adapts_the_language_model_and_leaves_the_vision_tower_alone() -> None:
    settings = LoraSettings()
    model = Qwen3VLForConditionalGeneration.from_pretrained(BASE_MODEL)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=settings.target_modules,
        exclude_modules=settings.exclude_modules,
    )
    names = [name for name, _ in get_peft_model(model, config).named_parameters() if "lora_" in name]
    assert names
    assert all("language_model.layers" in name for name in names)
    assert {name.split(".lora_")[0].rsplit(".", 1)[1] for name in names} == {
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    }


def test_the_shipped_model_plays_in_the_protocol() -> None:
    model = Qwen3VLForConditionalGeneration.from_pretrained(BASE_MODEL).eval()
    processor = AutoProcessor.from_pretrained(BASE_MODEL)
    outcomes = play_greedily(model, processor, MazeSettings(), [0, 1, 2, 3], max_turns=4)
    assert [outcome.seed for outcome in outcomes] == [0, 1, 2, 3]
    assert sum(outcome.unparsable_replies for outcome in outcomes) == 0
    assert Path(BASE_MODEL / "config.json").exists()
