"""Serving on real parts: Ray Serve LLM with vLLM on CPU, S3 on loopback, MLflow's registry.

The adapters are random LoRA weights on the shipped base: small enough that it still answers in its protocol, large
enough to tell them from each other and from the base, whatever the rounding.
"""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from flows.deployments import load_settings
from flows.settings.retrain import RetrainSettings
from rl.events import Probed, parse_line
from rl.maze.score import EvalReport, Outcome
from rl.proof.questions import probe_conversations
from rl.proof.settings import ProbeJob, Questions
from rl.settings import MazeSettings
from serving.app import adapter_model_id, champion_uri, serve_document
from serving.files import CONFIG, WEIGHTS
from serving.publish import PublishJob, publish
from serving.settings import ServerSettings
from tasks.clients.serve_rest import ServeRest
from tasks.errors import ModelNotServed, NoSuchAdapter, RolloutFailed
from tasks.records import Certificate, PublishedAdapter, ServedEndpoint, ServingSide, TrainingSide
from tasks.release.aliases import ChampionRegistry
from tasks.release.openai_chat import ChatEndpoint, Reply
from tasks.release.proof import Heard, ask_probes, weigh
from tests.unit.samples import RULES

# The rehearsal counts, too: its application is taken over here, and the last test breaks it.
pytestmark = pytest.mark.slow_s(850)

ROOT = Path(__file__).resolve().parents[3]
BASE = ROOT / "rl" / "models" / "tiny-qwen3-vl"
QUESTION = next(probe_conversations(Questions(maze=MazeSettings(), num_probes=1, max_reply_tokens=4)))
SEEDS = {"run-a-step-1": 1, "run-a-step-2": 2, "run-a-step-3": 3}
"""The adapters that tests publish."""
MAKE_ADAPTERS = """
import json, sys, torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen3VLForConditionalGeneration
for name, seed in json.loads(sys.argv[3]).items():
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration.from_pretrained(sys.argv[1])
    config = LoraConfig(r=8, lora_alpha=8, target_modules="all-linear", exclude_modules=".*visual.*")
    model = get_peft_model(model, config)
    for key, parameter in model.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(parameter, std=0.15)
    model.save_pretrained(f"{sys.argv[2]}/{name}")
"""


def in_training(arguments: list[str]) -> str:
    """What Python prints in the environment that trains."""
    command = [str(ROOT / ".venv-train" / "bin" / "python"), *arguments]
    return subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout


@dataclass
class World:
    """The running parts, and what they are asked through."""

    settings: RetrainSettings
    server: ServerSettings
    rest: ServeRest
    chat: ChatEndpoint
    registry: ChampionRegistry
    folder: Path
    s3: Any

    def made(self, name: str) -> Path:
        """A random adapter on the shipped base, as peft writes it."""
        return self.folder / name

    def publish(self, name: str, folder: Path | None = None) -> PublishedAdapter:
        step = int(name.rpartition("-")[2])
        order = PublishJob(
            adapter_dir=str(folder or self.made(name)),
            base_dir=str(BASE),
            adapters_uri=self.server.adapters_uri,
            adapter_name=name,
            max_lora_rank=self.server.max_lora_rank,
            serves_tower_lora=False,
            run_name=name,
            step=step,
            num_solved=1,
            num_mazes=64,
            eval_set_sha256="e" * 64,
            mlflow_run_id="",
        )
        manifest = publish(order, self.s3)
        adapter = self.adapter(name, manifest.adapter_sha256, step)
        self.registry.register(adapter, mlflow_run_id="", solved=1)
        return adapter

    def adapter(self, name: str, sha256: str = "0" * 64, step: int = 1) -> PublishedAdapter:
        model_id = adapter_model_id(self.server, name)
        uri = f"{self.server.adapters_uri}/{name}"
        return PublishedAdapter(name=name, uri=uri, sha256=sha256, step=step, model_id=model_id)

    def trained(self, folder: Path) -> list[Probed]:
        """What peft answers with the adapter in ``folder``."""
        order = ProbeJob(
            base_dir=str(BASE),
            adapter_dir=str(folder),
            dtype="float32",
            questions=self.settings.questions,
        )
        printed = in_training(["-m", "rl.proof.job", order.model_dump_json()])
        return [event for line in printed.splitlines() if isinstance(event := parse_line(line), Probed)]

    def proof(self, adapter: PublishedAdapter, trained: list[Probed]) -> Certificate:
        """The certificate for what the endpoint answers now; both evaluations stand aside, they agree."""
        served, base = (
            ask_probes(self.chat, model, self.settings.questions)
            for model in (adapter.model_id, self.server.base_model_id)
        )
        solved = Outcome(seed=1, solved=True, actions="s", unparsable_replies=0)
        same = EvalReport(step=1, rules=RULES, model_id="m", outcomes=(solved,))
        listed = self.chat.lists(adapter.model_id)
        training_side = TrainingSide(evaluation=same, questions=self.settings.questions, answers=tuple(trained))
        endpoint = ServedEndpoint(url=self.settings.serve.url, base_model_id=self.server.base_model_id, deployed=True)
        serving_side = ServingSide(adapter=adapter, endpoint=endpoint, evaluation=same)
        return weigh(self.settings.proof, training_side, serving_side, Heard(served, base, listed))

    def ask(self, model: str) -> Reply:
        return ChatEndpoint(self.settings.serve.url).chat(model, QUESTION, max_tokens=4, logprobs=True)

    def same(self, one: str, other: str) -> bool:
        """Whether two names give the same answer, but for rounding.

        Not to the bit: asked again, the prompt comes from the engine's cache and its last tokens go through products
        of another shape. The proof's tolerance is the one here; tests/train/grpo/test_length_groups.py derives one of
        that size for two float32 passes of this model.
        """
        return difference(self.ask(one), self.ask(other)) <= self.settings.proof.max_logprob_difference

    def apart(self, one: str, other: str) -> bool:
        """Whether two names give answers that no rounding explains: a hundred times that tolerance lies between."""
        return difference(self.ask(one), self.ask(other)) >= 100 * self.settings.proof.max_logprob_difference


def difference(one: Reply, other: Reply) -> float:
    """Largest difference of the tokens' log-probabilities; no number is as large where the words differ."""
    if one.text != other.text:
        return math.inf
    return max(abs(a - b) for a, b in zip(one.token_logprobs, other.token_logprobs, strict=True))


@pytest.fixture(scope="module")
def world(services: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in services.items():
            patch.setenv(name, value)
        folder = tmp_path_factory.mktemp("adapters")
        # All by one process: its imports take longer than the adapters. And once: peft writes target_modules in a
        # set's order, so made again the same adapter has other bytes.
        in_training(["-c", MAKE_ADAPTERS, str(BASE), str(folder), json.dumps(SEEDS)])
        settings = load_settings("retrain/local", {})
        server: ServerSettings = settings.serve.server
        registry = ChampionRegistry(services["MLFLOW_TRACKING_URI"], "test-adapters", champion_uri(server))
        yield World(
            settings=settings,
            server=server,
            rest=ServeRest(settings.serve.dashboard),
            chat=ChatEndpoint(settings.serve.url),
            registry=registry,
            folder=folder,
            s3=boto3.client("s3"),
        )


@pytest.fixture(scope="module")
def first(world: World) -> PublishedAdapter:
    """An adapter, and an application that serves it: the rehearsal's where that has run before."""
    adapter = world.publish("run-a-step-1")
    world.rest.ensure(serve_document(world.server), timeout_s=600)
    return adapter


def test_base_and_adapter_answer_under_their_names_and_differ(world: World, first: PublishedAdapter) -> None:
    base, adapted = world.ask(world.server.base_model_id), world.ask(first.model_id)
    assert (base.model, adapted.model) == (world.server.base_model_id, first.model_id)
    assert world.apart(world.server.base_model_id, first.model_id)
    assert {world.server.base_model_id, first.model_id} <= set(world.chat.model_ids())


def test_an_adapter_published_later_is_served_without_a_redeploy(world: World, first: PublishedAdapter) -> None:
    second = world.publish("run-a-step-2")
    assert not world.rest.ensure(serve_document(world.server), timeout_s=60)
    assert world.ask(second.model_id).model == second.model_id
    assert world.apart(second.model_id, first.model_id)


def test_an_adapter_is_loaded_once_however_many_ask_for_it_first(world: World, first: PublishedAdapter) -> None:
    third = world.publish("run-a-step-3")
    with ThreadPoolExecutor(16) as pool:
        models = list(pool.map(lambda _: world.ask(third.model_id).model, range(16)))
    assert models == [third.model_id] * 16


def test_a_missing_adapter_is_named_and_harms_nobody(world: World, first: PublishedAdapter) -> None:
    with pytest.raises(ModelNotServed, match="nobody"):
        world.ask(adapter_model_id(world.server, "nobody"))
    assert world.ask(first.model_id).model == first.model_id


def test_the_proof_holds_for_the_trained_adapter_and_catches_planted_ones(
    world: World, first: PublishedAdapter
) -> None:
    """An hour's training is worth nothing if users get other weights: another step's, or the bare base."""
    trained = world.trained(world.made("run-a-step-1"))
    found = world.proof(first, trained)
    assert found.holds, found.failures

    other = world.publish("planted-step-1", folder=world.made("run-a-step-2"))
    assert any("other weights are served" in failure for failure in world.proof(other, trained).failures)

    idle = world.adapter("idle-step-1")
    plant_without_checks(world, idle, zeroed(world.made("run-a-step-1"), world.folder / "idle"))
    assert any("the base answers under the name" in failure for failure in world.proof(idle, trained).failures)


def zeroed(adapter: Path, copy: Path) -> Path:
    """The same adapter with every lora_B zero: it answers as the base does."""
    copy.mkdir()
    tensors = load_file(adapter / WEIGHTS)
    save_file({k: np.zeros_like(t) if "lora_B" in k else t for k, t in tensors.items()}, copy / WEIGHTS)
    (copy / CONFIG).write_text((adapter / CONFIG).read_text())
    return copy


def plant_without_checks(world: World, adapter: PublishedAdapter, folder: Path) -> None:
    """Past everything that would refuse it."""
    bucket, _, key = adapter.uri.removeprefix("s3://").partition("/")
    for name in (WEIGHTS, CONFIG):
        world.s3.put_object(Bucket=bucket, Key=f"{key}/{name}", Body=(folder / name).read_bytes())


def test_promotion_and_rollback_move_the_champion_s_answers_without_a_redeploy(
    world: World, first: PublishedAdapter
) -> None:
    champion = adapter_model_id(world.server, "champion")
    with pytest.raises(ModelNotServed, match="no adapter was promoted yet"):
        world.ask(champion)
    assert not world.chat.lists(champion)
    assert champion not in world.chat.model_ids()
    second = world.publish("run-a-step-2")
    assert world.registry.promote(first.name).champion == first.name
    assert world.ask(champion).model == first.model_id
    change = world.registry.promote(second.name)
    assert (change.champion, change.previous) == (second.name, first.name)
    wait_until_answered_by(world, champion, second.model_id)
    change = world.registry.roll_back()
    assert (change.champion, change.previous) == (first.name, second.name)
    wait_until_answered_by(world, champion, first.model_id)
    assert world.chat.lists(champion)
    assert champion in world.chat.model_ids()
    assert world.same(champion, first.model_id)
    assert world.apart(champion, second.model_id)
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
    with pytest.raises(NoSuchAdapter, match=f"no adapter 'nobody'; it has .*{first.name}"):
        world.registry.promote("nobody")


def test_a_replica_that_cannot_start_gives_its_cause_within_the_time_limit(
    world: World, first: PublishedAdapter
) -> None:
    document = serve_document(world.server.model_copy(update={"model_source": "/nowhere"}))
    (application,) = document["applications"]
    (model,) = application["args"]["llm_configs"]
    # Serve would start it three times, each time importing vLLM anew, to hear the same.
    model["deployment_config"]["max_constructor_retry_count"] = 1
    with pytest.raises(RolloutFailed, match=r"(?s)application llm is .*nowhere"):
        world.rest.ensure(document, timeout_s=240)
