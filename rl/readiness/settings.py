"""The checks on the nodes that train: their names, their remedies, their settings. Importing costs pydantic only."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rl.settings import Settings

CheckKey = Literal["resources", "versions", "gpus", "shared", "space", "model", "mlflow", "all_reduce"]

CHECKS: dict[CheckKey, tuple[str, str]] = {
    "resources": (
        "the GPUs of this run are there and free",
        "bring the missing workers up, end what holds their GPUs (ray list actors), or lower the nodes and engines of "
        "train",
    ),
    "versions": (
        "Python, Ray, vLLM, SkyRL and torch are the same everywhere",
        "start every node from the same image or environment, and replace the one that differs",
    ),
    "gpus": (
        "the GPUs are alike and large enough",
        "replace the node that differs, or lower readiness.nodes.min_gpu_memory_gb",
    ),
    "shared": (
        "the shared folder is one file system",
        "mount the same volume at train.shared_dir on the head and on every worker; replace a pod that lost its mount",
    ),
    "space": (
        "the shared folder has room for the checkpoints",
        "free some space, keep fewer of them (train.max_checkpoints_to_keep), or lower train.min_free_disk_gb",
    ),
    "model": (
        "the base model can be loaded",
        "point train.model_path at a model with its processor, in a folder that every node sees",
    ),
    "mlflow": (
        "MLflow answers on every node",
        "start it, correct tracking.tracking_uri, or open the way from the nodes to it (network policy, proxy)",
    ),
    "all_reduce": (
        "all ranks add up their numbers",
        "look at the network between the nodes; put NCCL_DEBUG=INFO, NCCL_SOCKET_IFNAME or NCCL_P2P_DISABLE=1 into "
        "train.engine.env",
    ),
}
"""What is checked, and what to do where it does not hold."""

START_S = 60.0
"""What the process of a task or an actor may take to start on a busy node, in seconds, beside the limits below."""


class NodeReadiness(Settings):
    """The checks on the nodes, as a job of their own before training."""

    skip: tuple[CheckKey, ...] = ()
    """Checks that make no sense on this cluster; the table says that they were skipped."""
    min_gpu_memory_gb: float = Field(default=0.0, ge=0)
    """Least memory of one GPU, in GB (10^9 bytes); asked only where engine.device is cuda."""
    look_timeout_s: float = Field(default=30.0, gt=0)
    """Time for one look on one node, in seconds."""
    model_timeout_s: float = Field(default=180.0, gt=0)
    """Time to load the base model's configuration and processor, in seconds."""
    all_reduce_timeout_s: float = Field(default=120.0, gt=0)
    """Time for the ranks to meet and add up, in seconds; then they are killed."""
    timeout_s: float = Field(default=420.0, gt=0)
    """Time for all of it, in seconds; what has no answer by then does not hold."""

    @model_validator(mode="after")
    def _fits(self) -> NodeReadiness:
        longest = max(self.model_timeout_s, 5 * self.look_timeout_s + self.all_reduce_timeout_s + 2 * START_S)
        if self.timeout_s < longest:
            raise ValueError(
                f"timeout_s is {self.timeout_s:g}, the checks alone may take {longest:g} s (model_timeout_s, or "
                f"5 look_timeout_s + all_reduce_timeout_s + {2 * START_S:g}); raise it or lower them"
            )
        return self


class ReadyJob(Settings):
    """What the job's command line carries."""

    run_name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    checks: NodeReadiness
    device: Literal["cpu", "cuda"]
    """Where policy and engines will run."""
    num_gpus: int = Field(ge=1)
    """GPUs (or logical GPUs) of policy and engines together."""
    num_policy_nodes: int = Field(ge=1)
    num_gpus_per_node: int = Field(ge=1)
    """GPUs of the policy on each of its nodes."""
    env: dict[str, str]
    """Environment of the ranks: that of the engines, NCCL's variables included."""
    shared_dir: str
    min_free_disk_gb: float
    model_path: str
    tracking_uri: str


class NodeWants(Settings):
    """What one node is asked."""

    keys: tuple[CheckKey, ...]
    """Looks to take: versions, gpus, shared, model, mlflow."""
    probe_dir: str
    """Folder in shared_dir that the driver has made, with a file that holds ``token``."""
    token: str
    """Drawn anew by each job: an old file, or one of another file system, does not hold it."""
    model_path: str
    tracking_uri: str
    timeout_s: float
    """Time for one look, in seconds."""
