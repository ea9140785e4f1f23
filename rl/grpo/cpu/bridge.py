"""What SkyRL 0.4.0 needs to run where there is no GPU. One module, used only then, tested against the pinned SkyRL.

SkyRL's FSDP worker asks for CUDA by name: a current device, a NCCL process group, a "cuda" device mesh. Each
entry below answers one such request with its CPU counterpart. Nothing claims that CUDA is available: torch's
optimisers look at that and then want a driver.
"""

from __future__ import annotations

import importlib.util
import sys
import types
import warnings
from typing import Any


class BridgeNotNeeded(RuntimeError):
    """There is a GPU here; the bridge would only slow it down."""


def install() -> None:
    """Install the bridge in this process; a second call changes nothing.

    Runs first in every Ray worker of the job (``worker_process_setup_hook``). Raises BridgeNotNeeded on a
    machine with a working GPU.
    """
    import torch

    if torch.cuda.is_available():
        raise BridgeNotNeeded("torch sees a GPU; set engine.device to cuda")
    if getattr(torch, "_maze_cpu_bridge", False):
        return
    _stub_flash_attn()
    _answer_device_questions(torch)
    _use_gloo(torch)
    torch._maze_cpu_bridge = True  # type: ignore[attr-defined]
    warnings.filterwarnings("ignore", message=".*device_type of 'cuda', but CUDA is not available.*")


def _stub_flash_attn() -> None:
    """``workers/model_wrapper.py`` imports two functions that it calls only to remove padding, which VLMs keep."""
    if importlib.util.find_spec("flash_attn") is not None:
        return

    def unavailable(*_: Any, **__: Any) -> None:
        raise RuntimeError("flash_attn is not installed; keep trainer.remove_microbatch_padding=false on a CPU")

    package, padding = types.ModuleType("flash_attn"), types.ModuleType("flash_attn.bert_padding")
    package.__path__ = []
    package.__spec__ = importlib.util.spec_from_loader("flash_attn", loader=None, is_package=True)
    padding.pad_input = padding.unpad_input = unavailable  # type: ignore[attr-defined]
    package.bert_padding = padding  # type: ignore[attr-defined]
    sys.modules |= {"flash_attn": package, "flash_attn.bert_padding": padding}


def _answer_device_questions(torch: Any) -> None:
    cuda = torch.cuda
    cuda.current_device = lambda: "cpu"
    cuda.set_device = lambda device: None
    cuda.synchronize = lambda device=None: None
    cuda.empty_cache = lambda: None
    cuda.mem_get_info = lambda device=None: (0, 0)
    cuda.memory_allocated = lambda device=None: 0
    cuda.memory_reserved = lambda device=None: 0
    # fsdp_utils._sync_non_persistent_buffers stages buffers on the GPU before it broadcasts them.
    torch.Tensor.cuda = lambda self, *args, **kwargs: self


def _use_gloo(torch: Any) -> None:
    import torch.distributed.device_mesh as device_mesh

    init_group, init_mesh = torch.distributed.init_process_group, device_mesh.init_device_mesh

    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        init_group("gloo" if backend is None or "nccl" in backend else backend, *args, **kwargs)

    def init_device_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return init_mesh("cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    torch.distributed.init_process_group = init_process_group
    device_mesh.init_device_mesh = init_device_mesh
    torch.distributed.init_device_mesh = init_device_mesh


def policy_worker_class(num_threads: int = 0) -> type:
    """The FSDP policy worker without the NCCL weight-transfer engine: LoRA reaches the engine by disk.

    Its operations take ``num_threads`` threads; 0 leaves what OMP_NUM_THREADS says.
    """
    import torch
    from skyrl.backends.skyrl_train.workers.fsdp.fsdp_worker import FSDPPolicyWorkerBase

    class LoraByDiskPolicyWorker(FSDPPolicyWorkerBase):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if num_threads:
                torch.set_num_threads(num_threads)

        async def init_weight_sync_state(self, inference_engine_client: Any, inference_engine_cfg: Any) -> None:
            if not self._is_lora:
                raise RuntimeError("full weights need a GPU transport; on a CPU train a LoRA adapter (lora.rank > 0)")
            self._weight_sync_inference_client = inference_engine_client

    return LoraByDiskPolicyWorker


ENGINE_INIT_KWARGS = {
    # SkyRL turns "auto" into the GPU worker.
    "worker_cls": "rl.grpo.cpu.engine.MatmulLoraCPUWorker",
}

ENGINE_EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""Runs the worker inside the engine's process. vLLM's choice for CPUs starts another process (40 s of imports) and
polls it with sched_yield, which takes a core from it; the reason for it, binding OpenMP threads, does not apply to
``VLLM_CPU_OMP_THREADS_BIND=nobind``."""
