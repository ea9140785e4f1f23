"""Serving on real parts: Ray Serve LLM with vLLM on CPU, S3 on loopback, MLflow's registry. Six minutes on 2 cores.

The adapters are random LoRA weights on the shipped base: enough to tell them from each other and from the base.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from rl.probe import probe_conversations
from rl.settings import MazeSettings
from serving.app import adapter_model_id, champion_uri, serve_document
from serving.publish import PublishJob, publish
from serving.settings import ServerSettings
from tasks.adapters import ModelNotServed, NoSuchAdapter, RolloutFailed
from tasks.adapters.openai_chat import ChatEndpoint, Reply
from tasks.adapters.registry import ChampionRegistry
from tasks.adapters.serve_rest import ServeRest
from tasks.local.services import Layout, LocalServices
from tasks.records import PublishedAdapter

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "rl" / "models" / "tiny-qwen3-vl"
pytestmark = pytest.mark.skipif(
    not (ROOT / ".venv-serve" / ".synced").exists(),
    reason="no serving environment; `make .venv-serve/.synced`, then pytest tests/services/test_serving.py",
)
QUESTION = next(probe_conversations(MazeSettings(), 1))
MAKE_ADAPTER = """
import sys, torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen3VLForConditionalGeneration
torch.manual_seed(int(sys.argv[3]))
model = Qwen3VLForConditionalGeneration.from_pretrained(sys.argv[1])
config = LoraConfig(r=8, lora_alpha=8, target_modules="all-linear", exclude_modules=".*visual.*")
model = get_peft_model(model, config)
for name, parameter in model.named_parameters():
    if "lora_B" in name:
        torch.nn.init.normal_(parameter, std=0.05)
model.save_pretrained(sys.argv[2])
"""


@dataclass
class World:
    """The running parts, and what they are asked through."""

    server: ServerSettings
    rest: ServeRest
    chat: ChatEndpoint
    registry: ChampionRegistry
    folder: Path
    s3: Any

    def publish(self, name: str, seed: int) -> PublishedAdapter:
        folder = self.folder / name
        command = [str(ROOT / ".venv-train" / "bin" / "python"), "-c", MAKE_ADAPTER, str(BASE), str(folder), str(seed)]
        if not folder.exists():
            # peft writes target_modules in a set's order: made again, the same adapter has other bytes.
            subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
        order = PublishJob(
            adapter_dir=str(folder),
            base_dir=str(BASE),
            adapters_uri=self.server.adapters_uri,
            adapter_name=name,
            max_lora_rank=self.server.max_lora_rank,
            serves_tower_lora=False,
            run_name=name,
            step=seed,
            num_solved=1,
            num_mazes=64,
            eval_set_sha256="e" * 64,
            mlflow_run_id="",
        )
        manifest = publish(order, self.s3)
        model_id = adapter_model_id(self.server, name)
        adapter = PublishedAdapter(
            name=name,
            uri=f"{self.server.adapters_uri}/{name}",
            sha256=manifest.adapter_sha256,
            step=seed,
            model_id=model_id,
        )
        self.registry.register(adapter, mlflow_run_id="", solved=1)
        return adapter

    def ask(self, model: str) -> Reply:
        return self.chat.chat(model, QUESTION, max_tokens=4, logprobs=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    state = tmp_path_factory.mktemp("state")
    local = LocalServices(Layout(ROOT, state), say=print)
    try:
        env = local.up(["mlflow", "s3", "serve"])
        os.environ.update(env)
        server = ServerSettings(
            base_model_id="tiny",
            model_source=str(BASE),
            adapters_uri="s3://models/adapters/tiny",
            device="cpu",
            dtype="float32",
            max_model_len=2048,
            max_images=15,
            max_lora_rank=32,
            # vLLM 0.29 on a CPU asks the text model for an architecture, which Qwen3-VL configurations do not name.
            engine_kwargs={
                "enforce_eager": True,
                "hf_overrides": {"text_config": {"architectures": ["Qwen3ForCausalLM"]}},
            },
            env={
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "OMP_NUM_THREADS": "2",
            },
            http_port=int(env["SERVE_HTTP_PORT"]),
        )
        rest = ServeRest(env["SERVE_DASHBOARD"])
        registry = ChampionRegistry(env["MLFLOW_TRACKING_URI"], "test-adapters", champion_uri(server))
        yield World(server, rest, ChatEndpoint(env["SERVE_URL"]), registry, state, boto3.client("s3"))
    finally:
        local.down()


@pytest.fixture(scope="module")
def first(world: World) -> PublishedAdapter:
    """An adapter that is published before the application is deployed."""
    adapter = world.publish("run-a-step-1", seed=1)
    assert world.rest.ensure(serve_document(world.server), timeout_s=600), "nothing was running before"
    return adapter


def test_base_and_adapter_answer_under_their_names_and_differ(world: World, first: PublishedAdapter) -> None:
    base, adapted = world.ask(world.server.base_model_id), world.ask(first.model_id)
    assert (base.model, adapted.model) == (world.server.base_model_id, first.model_id)
    assert base.token_logprobs != adapted.token_logprobs
    assert {world.server.base_model_id, first.model_id} <= set(world.chat.model_ids())


def test_an_adapter_published_later_is_served_without_a_redeploy(world: World, first: PublishedAdapter) -> None:
    second = world.publish("run-a-step-2", seed=2)
    assert not world.rest.ensure(serve_document(world.server), timeout_s=60)
    assert world.ask(second.model_id).model == second.model_id
    assert world.ask(second.model_id).token_logprobs != world.ask(first.model_id).token_logprobs


def test_a_missing_adapter_is_named_and_harms_nobody(world: World, first: PublishedAdapter) -> None:
    with pytest.raises(ModelNotServed, match="nobody"):
        world.ask(adapter_model_id(world.server, "nobody"))
    assert world.ask(first.model_id).model == first.model_id


def test_promotion_and_rollback_move_the_champion_s_answers_without_a_redeploy(
    world: World, first: PublishedAdapter
) -> None:
    champion = adapter_model_id(world.server, "champion")
    with pytest.raises(ModelNotServed, match="no adapter was promoted yet"):
        world.ask(champion)
    second = world.publish("run-a-step-2", seed=2)
    assert world.registry.promote(first.name).champion == first.name
    assert world.ask(champion).model == first.model_id
    change = world.registry.promote(second.name)
    assert (change.champion, change.previous) == (second.name, first.name)
    wait_until_answered_by(world, champion, second.model_id)
    change = world.registry.roll_back()
    assert (change.champion, change.previous) == (first.name, second.name)
    wait_until_answered_by(world, champion, first.model_id)
    assert world.ask(champion).token_logprobs == world.ask(first.model_id).token_logprobs
    assert not world.rest.ensure(serve_document(world.server), timeout_s=60)


def wait_until_answered_by(world: World, name: str, model_id: str) -> None:
    """The endpoint may use a resolved name for two seconds more."""
    deadline = time.monotonic() + 10
    while world.ask(name).model != model_id:
        assert time.monotonic() < deadline, f"{name} is not {model_id}"
        time.sleep(0.3)


def test_promoting_twice_changes_nothing_and_an_unknown_name_lists_the_known(
    world: World, first: PublishedAdapter
) -> None:
    before = world.registry.promote(first.name)
    assert world.registry.promote(first.name) == before
    with pytest.raises(NoSuchAdapter, match=f"no adapter 'nobody'; it has {first.name}"):
        world.registry.promote("nobody")


def test_a_replica_that_cannot_start_gives_its_cause_within_the_time_limit(
    world: World, first: PublishedAdapter
) -> None:
    broken = world.server.model_copy(update={"model_source": "/nowhere"})
    with pytest.raises(RolloutFailed, match=r"(?s)application llm is .*nowhere"):
        world.rest.ensure(serve_document(broken), timeout_s=240)
