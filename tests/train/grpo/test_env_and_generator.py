"""Rollouts: the SkyRL-Gym adapter, and the generator against SkyRL's own on a scripted engine.

The engine is scripted (it replies what an episode needs, token by token); rendering is the real processor.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import io
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import skyrl_gym
import torch
from PIL import Image

import rl.grpo.rollouts.generator
from rl.base_model.build import build_processor
from rl.grpo.rollouts.engine_client import PicturesOnce
from rl.grpo.rollouts.generator import MazeGenerator
from rl.grpo.skyrl_env import register_env
from rl.maze.grid import generate_maze, shortest_path
from rl.maze.prompts import HIT_WALL, Move, Stop, action_text
from rl.settings import MazeSettings

SEED = 3
EXTRAS = {"seed": SEED, "maze": MazeSettings().model_dump_json(), "parsing": "tolerant", "max_turns": 15}
ORACLE = [*(action_text(Move(move)) for move in shortest_path(generate_maze(SEED, 7, 9))), action_text(Stop())]


@pytest.fixture(autouse=True)
def registered() -> None:
    register_env()


def make_env(**extras: Any) -> Any:
    return skyrl_gym.make("maze_2d", env_config={}, extras={**EXTRAS, **extras})


def picture(message: dict[str, Any]) -> Image.Image:
    url = message["content"][1]["image_url"]["url"]
    return Image.open(io.BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,"))))


def test_an_episode_shows_one_png_a_turn_and_pays_the_oracle() -> None:
    env = make_env()
    (opening,), _ = env.init([])
    assert opening["content"][0]["text"].startswith("You are navigating a 7x9 maze.")
    assert picture(opening).size == (72, 56)
    steps = [env.step(reply) for reply in ORACLE]
    assert [step["reward"] for step in steps] == [0.0] * (len(ORACLE) - 1) + [1.0]
    assert [len(step["observations"]) for step in steps] == [1] * (len(ORACLE) - 1) + [0]
    outcome = env.outcome()
    assert (outcome.solved, outcome.num_turns, outcome.actions[-1]) == (True, len(ORACLE), "S")


def test_the_turn_limit_ends_the_episode_unsolved() -> None:
    env = make_env(max_turns=3)
    env.init([])
    assert [env.step("hm")["done"] for _ in range(3)] == [False, False, True]
    assert env.outcome().unparsable_replies == 3
    assert not env.outcome().solved


def test_standing_on_the_target_without_stop_is_not_solved() -> None:
    env = make_env(max_turns=len(ORACLE) - 1)
    env.init([])
    assert [env.step(reply) for reply in ORACLE[:-1]][-1]["done"]
    assert not env.outcome().solved


@pytest.mark.parametrize(("parsing", "feedback"), [("tolerant", HIT_WALL), ("strict", "not a Python tuple")])
def test_how_replies_are_read_is_a_setting(parsing: str, feedback: str) -> None:
    env = make_env(parsing=parsing)
    env.init([])
    blocked = next(d for d in range(4) if d not in [m for m, _ in _free()])
    step = env.step(f"Going: ('move', {blocked})")
    assert feedback in step["observations"][0]["content"][0]["text"]


def _free() -> Iterator[Any]:
    maze = generate_maze(SEED, 7, 9)
    return maze.neighbours(maze.start)


class ScriptedEngine:
    """Renders with the real processor, replies with a script of token ids."""

    model_name = "base"
    proxy_url = "http://nobody"
    server_urls = ("http://nobody",)
    weight_version = None

    def __init__(self, replies: list[list[int]]) -> None:
        self.processor: Any = build_processor()
        self.replies = list(replies)
        self.prompts: list[list[int]] = []
        self.features: list[Any] = []
        self.num_rendered_images = self.num_sent_images = 0
        self.sent: dict[str, Any] = {}

    async def render_chat_completion(self, payload: dict[str, Any]) -> dict[str, Any]:
        # The processor rewrites image parts in place; the conversation is the generator's.
        messages = copy.deepcopy(payload["json"]["messages"])
        images = [picture(m) for m in messages if not isinstance(m["content"], str)]
        self.num_rendered_images += len(images)
        text = self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = self.processor(text=[text], images=images, return_tensors="pt")["input_ids"][0].tolist()
        pad = self.processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
        starts = [i for i, token in enumerate(ids) if token == pad and ids[i - 1] != pad]
        features = {
            "mm_hashes": {"image": [str(hash(image.tobytes())) for image in images]},
            "mm_placeholders": {"image": [{"offset": start, "length": 63} for start in starts]},
            "kwargs_data": {"image": [image.tobytes() for image in images]},
        }
        return {"token_ids": ids, "features": features}

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        batch = args[0] if args else None
        prompt = batch["prompt_token_ids"][0] if batch else kwargs["prompt_token_ids"]
        self.prompts.append(list(prompt))
        features = copy.deepcopy(batch["mm_features"][0] if batch else kwargs["mm_features"])
        self.features.append({**features, "kwargs_data": {"image": self.resolve(features)}})
        ids = self.replies.pop(0)
        logprobs = [-0.25] * len(ids)
        if batch:
            # SkyRL's client keeps the end of turn in this text, so that stock conversations hold it twice from the
            # second turn on. Without it both generators are asked the same.
            text = self.processor.tokenizer.decode(ids, skip_special_tokens=True)
            return {
                "responses": [text],
                "response_ids": [ids],
                "stop_reasons": ["stop"],
                "response_logprobs": [logprobs],
            }
        return SimpleNamespace(response_ids=ids, response_logprobs=logprobs, stop_reason="stop")

    def resolve(self, features: Any) -> list[Any]:
        """An item without data is the one that came under its hash before; each may come once."""
        pairs = list(zip(features["mm_hashes"]["image"], features["kwargs_data"]["image"], strict=True))
        self.num_sent_images += sum(data is not None for _, data in pairs)
        self.sent |= {hash_: data for hash_, data in pairs if data is not None}
        return [self.sent[hash_] for hash_, _ in pairs]

    async def finish_session(self, session_id: str) -> None:
        """The stock generator's."""


def fake_decode(kwargs_data: Any) -> dict[str, torch.Tensor]:
    images = kwargs_data["image"]
    pixels = [torch.tensor(list(image)).float() for image in images]
    return {"pixel_values": torch.cat(pixels), "image_grid_thw": torch.tensor([[1, 14, 18]] * len(images))}


def play(monkeypatch: pytest.MonkeyPatch, replies: list[list[int]], stock: bool = False) -> tuple[Any, ScriptedEngine]:
    import skyrl.train.generators.skyrl_vlm_generator as stock_module
    from skyrl.train.config import GeneratorConfig, SkyRLGymConfig

    monkeypatch.setattr(rl.grpo.rollouts.generator, "decode_mm_kwargs", fake_decode)
    monkeypatch.setattr(stock_module, "decode_mm_kwargs", fake_decode)
    engine = ScriptedEngine(replies)
    config = GeneratorConfig(max_turns=15, vision_language_generator=True, max_input_length=4096)
    kind: Any = stock_module.SkyRLVLMGymGenerator if stock else MazeGenerator
    generator: Any = kind(config, SkyRLGymConfig(max_env_workers=0), engine, engine.processor.tokenizer, "adapter")
    if not stock:
        generator._engine = PicturesOnce(engine, num_engines=1)
    loop = generator.agent_loop([], "maze_2d", dict(EXTRAS), 16, 4096, sampling_params={"logprobs": 1})
    return asyncio.run(loop), engine


def tokens(*replies: str) -> list[list[int]]:
    tokenizer = build_processor().tokenizer
    return [tokenizer.encode(reply + "<|im_end|>", add_special_tokens=False) for reply in replies]


def test_incremental_rendering_gives_what_rendering_everything_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, our_engine = play(monkeypatch, tokens(*ORACLE))
    theirs, their_engine = play(monkeypatch, tokens(*ORACLE), stock=True)
    assert our_engine.prompts == their_engine.prompts
    assert our_engine.features == their_engine.features
    for name in ("prompt_ids", "response_ids", "loss_mask", "reward", "rollout_logprobs", "stop_reason"):
        assert getattr(ours, name) == getattr(theirs, name), name
    # To the bit: the pixels here are bytes, and nobody computes with them.
    assert torch.equal(ours.pixel_values, theirs.pixel_values)
    assert torch.equal(ours.image_grid_thw, theirs.image_grid_thw)
    turns = len(ORACLE)
    assert their_engine.num_rendered_images == 1 + turns * (turns + 1) // 2
    # One image a turn, and the one conversation of two turns that checks the template.
    assert our_engine.num_rendered_images == turns + 2
    assert (our_engine.num_sent_images, their_engine.num_sent_images) == (turns, turns * (turns + 1) // 2)


def test_ids_that_do_not_retokenise_stay_as_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    spelled = build_processor().tokenizer.convert_tokens_to_ids(list("('") + list("move"))
    odd = [spelled, *tokens(*ORACLE)]
    ours, engine = play(monkeypatch, [[*spelled], *tokens(*ORACLE)])
    assert odd[0] == ours.response_ids[: len(spelled)]
    # Cut off by length: the template's end of turn is added, masked out of the loss.
    assert ours.loss_mask[: len(spelled) + 2] == [1] * len(spelled) + [0, 0]
    assert sum(ours.loss_mask) == len(spelled) + sum(map(len, tokens(*ORACLE)))
    assert len(engine.prompts) == len(ORACLE) + 1
    assert sum(ours.reward) == 1.0


def test_a_reply_with_image_tokens_costs_its_trajectory_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    pad = build_processor().tokenizer.convert_tokens_to_ids("<|image_pad|>")
    first = tokens(ORACLE[0])[0]
    ours, _ = play(monkeypatch, [first, [pad, *first]])
    assert ours.env_metrics["dropped"] == 1
    assert sum(ours.loss_mask) == 0
    assert sum(ours.reward) == 0
    assert not ours.env_metrics["outcome"].solved
    num_images = len(ours.image_grid_thw)
    assert (ours.prompt_ids + ours.response_ids).count(pad) == 63 * num_images


def test_a_dropped_trajectory_is_not_solved_even_where_its_reply_would_have_been(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pad = build_processor().tokenizer.convert_tokens_to_ids("<|image_pad|>")
    *walk, stop = tokens(*ORACLE)
    ours, _ = play(monkeypatch, [*walk, [pad, *stop]])
    assert not ours.env_metrics["outcome"].solved
    assert sum(ours.reward) == 0


def test_a_template_that_rewrites_earlier_turns_is_refused() -> None:
    engine = ScriptedEngine([])
    tokenizer = engine.processor.tokenizer
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "{{ message.content }}", "{{ (message.role == 'assistant') * '<think></think>' + message.content }}"
    )
    with pytest.raises(rl.grpo.rollouts.generator.PrefixPropertyBroken, match="rewrites earlier turns"):
        MazeGenerator._ids_after_reply(SimpleNamespace(tokenizer=tokenizer))  # type: ignore[arg-type]
