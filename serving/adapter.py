"""What makes a PEFT LoRA adapter fit to be served: checks on the files themselves, and their manifest.

Everything is checked before a single byte is uploaded, because a server remembers: vLLM keeps failing under a name
that once failed, and an unreadable ``adapter_config.json`` breaks the model list for every client.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - teaches numpy bfloat16, which safetensors then reads
import numpy as np
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError, safe_open

from serving.files import CONFIG, WEIGHTS

_PREFIX = "base_model.model."
_FLOATS = ("F32", "F16", "BF16")


class AdapterRejected(ValueError):
    """The adapter must not be served; says which file and key, what is there and what was wanted."""


@dataclass(frozen=True)
class ServerLimits:
    """What the server that will load the adapter accepts."""

    max_lora_rank: int
    serves_tower_lora: bool = False
    """Whether vLLM was started with ``enable_tower_connector_lora``; otherwise it drops vision weights in silence."""


class Manifest(BaseModel):
    """What an adapter is, beside its files in the object store."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    adapter_name: str
    run_name: str
    step: int
    base_fingerprint: str
    """SHA-256 over the digests of the base model's weight files, see ``base_fingerprint``."""
    rank: int
    target_modules: tuple[str, ...]
    num_solved: int
    num_mazes: int
    eval_set_sha256: str
    mlflow_run_id: str
    sha256: dict[str, str]
    """File name -> SHA-256 of its bytes."""

    @property
    def adapter_sha256(self) -> str:
        """One digest for the whole adapter."""
        return hashlib.sha256(json.dumps(self.sha256, sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tensor_headers(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name -> (dtype, shape) of every tensor in a folder's safetensors files; no weights are read."""
    headers: dict[str, tuple[str, tuple[int, ...]]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            size_bytes = int.from_bytes(file.read(8), "little")
            entries: dict[str, Any] = json.loads(file.read(size_bytes))
        entries.pop("__metadata__", None)
        headers |= {name: (entry["dtype"], tuple(entry["shape"])) for name, entry in entries.items()}
    return headers


def base_fingerprint(folder: Path) -> str:
    """Identifies a base model by the contents of its weight files; the same bytes give the same digest."""
    digests = {path.name: file_sha256(path) for path in sorted(folder.glob("*.safetensors"))}
    if not digests:
        raise AdapterRejected(f"base model folder {folder} has no safetensors file; point base_model at the model")
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def check_adapter(folder: Path, base: Path, limits: ServerLimits) -> dict[str, Any]:
    """All checks on ``folder`` against the base model's folder; returns the adapter's configuration.

    Raises AdapterRejected.
    """
    config = _config(folder)
    rank = config["r"]
    if rank > limits.max_lora_rank:
        raise AdapterRejected(
            f"{folder / CONFIG}: rank {rank}, the server loads at most {limits.max_lora_rank}; raise its "
            "max_lora_rank or train with a lower rank"
        )
    tensors = _tensors(folder / WEIGHTS)
    modules = _modules(folder / WEIGHTS, tensors)
    shapes = {name.removesuffix(".weight"): shape for name, (_, shape) in tensor_headers(base).items()}
    for module, (a, b) in modules.items():
        where = f"{folder / WEIGHTS}: {module}"
        if not limits.serves_tower_lora and ".visual." in f".{module}.":
            raise AdapterRejected(
                f"{where} adapts the vision tower, which the server leaves out without a word; exclude visual modules "
                "in training or start the server with tower LoRA"
            )
        if module not in shapes:
            raise AdapterRejected(
                f"{where} is no module of the base model {base}, which has for example {next(iter(shapes), 'none')}; "
                "the adapter belongs to another base or was saved with another prefix"
            )
        _check_pair(where, a, b, rank, shapes[module])
    if not any(np.any(b) for _, b in modules.values()):
        raise AdapterRejected(
            f"{folder / WEIGHTS}: every lora_B is zero, so the adapter changes nothing; export after a training step"
        )
    return config


def _config(folder: Path) -> dict[str, Any]:
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise AdapterRejected(f"{folder} has no {name}; the export is incomplete, take another step's")
    try:
        config = json.loads((folder / CONFIG).read_text())
    except json.JSONDecodeError as error:
        raise AdapterRejected(f"{folder / CONFIG} is not JSON ({error}); export again") from error
    if config.get("peft_type") != "LORA" or not isinstance(config.get("r"), int):
        raise AdapterRejected(
            f"{folder / CONFIG}: peft_type {config.get('peft_type')!r} with rank {config.get('r')!r}; a LORA adapter "
            "with an integer rank r was wanted"
        )
    return config


def _tensors(path: Path) -> dict[str, np.ndarray]:
    try:
        with safe_open(path, framework="numpy") as file:
            odd = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
            if wrong := {name: dtype for name, dtype in odd.items() if dtype not in _FLOATS}:
                name, dtype = next(iter(wrong.items()))
                raise AdapterRejected(f"{path}: {name} has dtype {dtype}; one of {', '.join(_FLOATS)} was wanted")
            return {name: file.get_tensor(name).astype(np.float32) for name in odd}
    except SafetensorError as error:
        raise AdapterRejected(f"{path} cannot be read ({error}); it is cut off or damaged, export again") from error


def _modules(path: Path, tensors: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Module name as in the base model -> its (A [rank, in], B [out, rank])."""
    sides: dict[str, dict[str, np.ndarray]] = {}
    for key, tensor in tensors.items():
        module, dot, side = key.removeprefix(_PREFIX).rpartition(".lora_")
        if not key.startswith(_PREFIX) or not dot or side not in ("A.weight", "B.weight"):
            raise AdapterRejected(
                f"{path}: key {key}; {_PREFIX}<module>.lora_A.weight or .lora_B.weight was wanted, as peft's "
                "save_pretrained writes them"
            )
        if not np.isfinite(tensor).all():
            raise AdapterRejected(
                f"{path}: {key} holds values that are not finite; training diverged, take an earlier step"
            )
        sides.setdefault(module, {})[side[0]] = tensor
    if not sides:
        raise AdapterRejected(f"{path} holds no tensors; export again")
    for module, pair in sides.items():
        if set(pair) != {"A", "B"}:
            raise AdapterRejected(f"{path}: {module} has only lora_{next(iter(pair))}; both halves were wanted")
    return {module: (pair["A"], pair["B"]) for module, pair in sides.items()}


def _check_pair(where: str, a: np.ndarray, b: np.ndarray, rank: int, shape: tuple[int, ...]) -> None:
    wanted = ((rank, shape[1]), (shape[0], rank))
    if (a.shape, b.shape) != wanted:
        raise AdapterRejected(
            f"{where}: lora_A {a.shape} and lora_B {b.shape}; the base module {shape} at rank {rank} wants "
            f"{wanted[0]} and {wanted[1]}"
        )
