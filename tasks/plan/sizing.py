"""What a run on the cluster would write, take and cost, and what would keep it from working. Pure.

Every check that can be made without the cluster is made, all of them, and then there is one verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

from rl.grpo.settings import TrainSettings
from tasks.cluster.checks import PLACE_REMEDY, windows_of
from tasks.cluster.placement import Amount, Placed, Room, homeless, place
from tasks.cluster.ray_settings import OwnMachines, RayOnKubernetes
from tasks.errors import StageError
from tasks.plan.settings import BaseModelFacts, PlanSettings
from tasks.records import Check

HOURS_PER_MONTH = 730
BYTES_PER_WEIGHT = 4
"""FSDP keeps the policy in float32; its checkpoints hold every weight, frozen ones too (measured on the local run)."""
BYTES_PER_TRAINED = 12
"""An adapter's weight in float32 and AdamW's two moments."""


class PlanRefused(StageError):
    """The run could not work as it is set up; every reason is listed."""


@dataclass(frozen=True)
class Sizes:
    """Bytes on the shared file system and in S3."""

    save_steps: tuple[int, ...]
    """Steps with a full checkpoint and an export: the interval, every epoch's end, the last step."""
    adapter_bytes: int
    checkpoint_bytes: int
    kept_bytes: int
    """Checkpoints kept at a time, one more while it is being written, every export, the base model."""


def lora_params(model: BaseModelFacts, rank: int) -> int:
    """Weights of a LoRA on every linear layer of the language model (attention's four, the MLP's three)."""
    hidden, kv, inner = model.hidden_size, model.kv_size, model.intermediate_size
    widths = [(hidden, hidden), (hidden, kv), (hidden, kv), (hidden, hidden)]
    widths += [(hidden, inner), (hidden, inner), (inner, hidden)]
    return model.num_layers * rank * sum(into + out for into, out in widths)


def sizes(train: TrainSettings, model: BaseModelFacts) -> Sizes:
    """What the run writes."""
    last, epoch = train.grpo.max_steps, train.data.num_train_mazes // train.grpo.mazes_per_step
    steps = {step for step in range(1, last + 1) if step % train.export_interval == 0 or step % epoch == 0} | {last}
    trained = lora_params(model, train.lora.rank)
    adapter = trained * BYTES_PER_WEIGHT
    checkpoint = model.num_params * BYTES_PER_WEIGHT + trained * BYTES_PER_TRAINED
    kept = len(steps) if train.max_checkpoints_to_keep < 0 else min(train.max_checkpoints_to_keep + 1, len(steps))
    base = model.num_params * 2
    return Sizes(
        save_steps=tuple(sorted(steps)),
        adapter_bytes=adapter,
        checkpoint_bytes=checkpoint,
        kept_bytes=kept * checkpoint + len(steps) * adapter + base,
    )


def durations_h(train: TrainSettings, plan: PlanSettings) -> dict[str, float]:
    """Expected hours of each part, from the plan's expectations."""
    evaluations = -(-train.grpo.max_steps // train.eval_interval) + 1
    parts = {
        "start": plan.expected_start_s,
        "steps": train.grpo.max_steps * plan.expected_step_s,
        "evaluations": evaluations * plan.expected_evaluation_s,
        "publish, serve, prove, judge": plan.expected_serving_s,
    }
    return {name: seconds / 3600 for name, seconds in parts.items()}


def costs_usd(hours: float, hosting: RayOnKubernetes, plan: PlanSettings) -> dict[str, float]:
    """What the machines and the file system cost for so long; what was there before the run is not left out."""
    groups = {"workers": hosting.workers, "head": hosting.head}
    machines = {name: hours * group.count * group.usd_per_h for name, group in groups.items()}
    if isinstance(hosting.serving, OwnMachines):
        machines["serving beside it"] = hours * serving_usd_per_h(hosting)
    shared = hours / HOURS_PER_MONTH * hosting.shared_size_gb * plan.usd_per_gb_month_shared
    return {**machines, "shared file system": shared}


def serving_usd_per_h(hosting: RayOnKubernetes) -> float:
    """What the machines cost that serving stands on, whosever they are."""
    return sum(group.usd_per_h for group in hosting.serving_groups)


def expected_rooms(hosting: RayOnKubernetes) -> list[Room]:
    """The machines of the settings' groups, as free as they are expected to be."""
    return [
        Room(
            f"{group.group_name}-{number}",
            group.selector,
            Amount(group.free_cpus, group.free_memory_gib, group.num_gpus),
        )
        for group in hosting.groups
        for number in range(1, group.count + 1)
    ]


def placements(hosting: RayOnKubernetes) -> dict[str, tuple[Placed, ...]]:
    """Window -> every pod of it with its machine; which pods stand at the same time follows from hosting.serving."""
    return {title: place(pods, expected_rooms(hosting)) for title, pods in windows_of(hosting).items()}


def checks(train: TrainSettings, hosting: RayOnKubernetes, plan: PlanSettings, skyrl: str) -> tuple[Check, ...]:
    """Everything that can be known now. ``skyrl`` is what SkyRL said against the settings; empty when it took them."""
    gpus = hosting.workers.count * hosting.workers.num_gpus
    wanted = train.num_gpus
    size = sizes(train, plan.model)
    gathered_gib = plan.model.num_params * BYTES_PER_WEIGHT / 2**30
    nowhere = "; ".join(why for placed in placements(hosting).values() if (why := homeless(placed)))
    inside = train.shared_dir.startswith(hosting.shared_mount) and train.model_path.startswith(hosting.shared_mount)
    found = [
        Check(name="SkyRL takes the settings", holds=not skyrl, found=skyrl or "yes", remedy="change what it names"),
        Check(
            name="the workers have the GPUs that policy and engines want",
            holds=gpus == wanted,
            found=f"{hosting.workers.count} x {hosting.workers.num_gpus} GPUs, {wanted} wanted",
            remedy="change hosting.workers, or train.num_policy_nodes, num_gpus_per_node and engine.num_engines",
        ),
        Check(
            name="policy nodes are whole machines",
            holds=(train.num_policy_nodes, train.num_gpus_per_node) == (hosting.workers.count, hosting.workers.num_gpus)
            or not train.engine.colocate,
            found=f"{train.num_policy_nodes} nodes x {train.num_gpus_per_node} GPUs",
            remedy="set train.num_policy_nodes and num_gpus_per_node to hosting.workers",
        ),
        Check(
            name="every pod has a place, in training and in serving",
            holds=not nowhere,
            found=nowhere or "pod by pod above",
            remedy=PLACE_REMEDY,
        ),
        Check(
            name="one worker's memory holds the gathered weights",
            holds=gathered_gib < hosting.workers.memory_gib,
            found=f"{gathered_gib:.0f} GiB for the state dict on rank 0, {hosting.workers.memory_gib} GiB in the pod",
            remedy="raise hosting.workers.memory_gib or take larger machines",
        ),
        Check(
            name="the shared file system holds what is kept",
            holds=size.kept_bytes / 1e9 < hosting.shared_size_gb,
            found=f"{size.kept_bytes / 1e9:.0f} GB kept, {hosting.shared_size_gb:.0f} GB there",
            remedy="keep fewer checkpoints (train.max_checkpoints_to_keep) or enlarge the file system",
        ),
        Check(
            name="runs and base model lie on the shared file system",
            holds=inside,
            found=f"{train.shared_dir}, {train.model_path}",
            remedy=f"put train.shared_dir and train.model_path under {hosting.shared_mount}",
        ),
    ]
    return tuple(found)


def require(found: tuple[Check, ...]) -> None:
    """Raise PlanRefused with every check that does not hold."""
    broken = [f"{check.name}: {check.found}; {check.remedy}" for check in found if not check.holds]
    if broken:
        raise PlanRefused("this run cannot work:\n" + "\n".join(f"- {line}" for line in broken))
