"""Ray job entry point of the GRPO run: ``python -m rl.grpo.job '<TrainJob as JSON>'``.

Checks everything that can be known first, then hands over to SkyRL. Progress, metrics, evaluations, exports
and faults leave as events (rl/events.py); files go to ``<shared_dir>/runs/<run_name>``.
"""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from rl.events import Completed, EventLog, Fault, Wrote
from rl.grpo import secret_env
from rl.grpo.config_table import RunDirs, skyrl_overrides
from rl.grpo.cpu import bridge as cpu_bridge
from rl.grpo.faults import root_of, words_of
from rl.grpo.ray_metrics import RunGauges
from rl.grpo.rows import write_rows
from rl.grpo.settings import TrainJob
from rl.grpo.start import begin_attempt, is_finished, keep_order, tell_the_end_again
from rl.maze.run_mazes import Mazes, prepare_mazes
from rl.model_files import NoModel, loaded, missing_files
from rl.output import clean_output, tell_stacks_at_stop

RESOLVED = "skyrl_resolved.yaml"
"""SkyRL's whole configuration, in the run's folder."""


class CannotStart(RuntimeError):
    """Something that training needs is missing; nothing was started."""


def check_before_start(job: TrainJob, dirs: RunDirs) -> Mazes:
    """Everything that can be known without a GPU; raises with what is, what was wanted and what to do."""
    mazes = prepare_mazes(job.train.data)
    if mazes.train_sha256 != job.train_mazes_sha256:
        raise CannotStart(
            f"this image draws training mazes {mazes.train_sha256[:12]}, the orchestrator prepared "
            f"{job.train_mazes_sha256[:12]}; run the same version of the project on both sides"
        )
    model = Path(job.train.model_path)
    if missing := missing_files(model):
        raise CannotStart(
            f"model folder {model} has no {', '.join(missing)}; point train.model_path at a model with its processor"
        )
    dirs.root.mkdir(parents=True, exist_ok=True)
    free_gb = shutil.disk_usage(dirs.root).free / 1e9
    if free_gb < job.train.min_free_disk_gb:
        raise CannotStart(
            f"{dirs.root} has {free_gb:.1f} GB free, train.min_free_disk_gb wants {job.train.min_free_disk_gb:.1f}; "
            "free some space or lower the number of checkpoints kept"
        )
    return mazes


def check_model(folder: str) -> None:
    """Raises CannotStart where transformers finds no processor of pictures and chats in the folder."""
    try:
        loaded(Path(folder))
    except (NoModel, OSError, ValueError) as error:
        raise CannotStart(
            f"model folder {folder}: {error}; point train.model_path at a model with its processor"
        ) from error


def run(
    job: TrainJob, log: EventLog, make_experiment: Any = None, cpu_executor: str = cpu_bridge.ENGINE_EXECUTOR
) -> None:
    """Train from the latest whole checkpoint, or from the base model, to exactly ``max_steps``.

    ``make_experiment`` takes the place of MazeExperiment where another generator or trainer is measured.
    """
    dirs = RunDirs(job.train.shared_dir, job.run_name)
    mazes = check_before_start(job, dirs)
    write_rows(dirs.train_rows, mazes.train_seeds, job.train.data, "train")
    write_rows(dirs.eval_rows, [maze.seed for maze in mazes.eval_set.mazes], job.train.data, "eval")
    keep_order(job, dirs)
    told = log.earlier()
    if is_finished(job, told):
        tell_the_end_again(job, log, told)
        return
    checkpoint = begin_attempt(job, dirs, log, told)
    overrides = skyrl_overrides(job, dirs, str(checkpoint.path) if checkpoint else None)
    try:
        policy_worker = prepare_devices(job, overrides)
        cfg = skyrl_config(overrides, dirs, cpu_executor if job.train.engine.device == "cpu" else "")
        log.emit(Wrote(name=RESOLVED, text=(dirs.root / RESOLVED).read_text()))
        log.emit(Wrote(name="packages.txt", text=installed_packages()))
        start_ray(job, cfg)
        check_model(job.train.model_path)
        from rl.grpo.experiment import MazeExperiment

        (make_experiment or MazeExperiment)(cfg, mazes, log, policy_worker).run()
        log.emit(Completed())
    finally:
        # The second channel: what the log has lost of this attempt, the file has.
        log.retell(log.earlier().results)


def skyrl_config(overrides: dict[str, Any], dirs: RunDirs, executor: str) -> Any:
    """SkyRL's whole configuration, checked by SkyRL and kept beside the run; ``executor`` replaces the engine's."""
    from skyrl.train.config import SkyRLTrainConfig, get_config_as_yaml_str
    from skyrl.train.utils import validate_cfg

    cfg = SkyRLTrainConfig.from_cli_overrides(overrides)
    validate_cfg(cfg)
    if executor:
        # SkyRL's check knows "mp" and "ray"; vLLM takes any executor by its path.
        cfg.generator.inference_engine.distributed_executor_backend = executor
    # SkyRL edits values after construction: keep what it resolved them to.
    (dirs.root / RESOLVED).write_text(get_config_as_yaml_str(cfg))
    return cfg


def installed_packages() -> str:
    """What this interpreter has, a line each, as ``pip freeze`` writes it."""
    found = {f"{package.name}=={package.version}" for package in distributions()}
    return "\n".join(sorted(found, key=str.lower)) + "\n"


def prepare_devices(job: TrainJob, overrides: dict[str, Any]) -> type:
    """Set the engine's environment and, where the run is on CPUs, install the bridge.

    Returns the class of the policy worker.
    """
    os.environ.update(job.train.engine.env)
    if job.train.engine.device == "cuda":
        from skyrl.backends.skyrl_train.workers.fsdp.fsdp_worker import FSDPPolicyWorkerBase

        return FSDPPolicyWorkerBase
    cpu_bridge.install()
    key = "generator.inference_engine.engine_init_kwargs"
    overrides[key] = {**cpu_bridge.ENGINE_INIT_KWARGS, **overrides[key]}
    return cpu_bridge.policy_worker_class(job.train.num_policy_threads)


def start_ray(job: TrainJob, cfg: Any) -> None:
    """Connect this job to its cluster with SkyRL's worker environment.

    Raises CannotStart when the cluster has not the devices that the settings name.
    """
    import ray
    from skyrl.backends.skyrl_train.utils.ppo_utils import sync_registries
    from skyrl.train.utils.utils import prepare_runtime_environment

    engine = job.train.engine
    log_file = Path(cfg.trainer.log_path) / f"infra-{datetime.now(UTC):%Y%m%d-%H%M%S}.log"
    log_file.parent.mkdir(parents=True, exist_ok=True)
    os.environ["SKYRL_LOG_FILE"] = str(log_file)
    with secret_env.hidden():
        env_vars = {**prepare_runtime_environment(cfg), "SKYRL_LOG_FILE": str(log_file), **engine.env}
    runtime_env: dict[str, Any] = {"env_vars": env_vars}
    if engine.device == "cpu":
        runtime_env["worker_process_setup_hook"] = "rl.grpo.cpu.bridge.install"
    ray.init(runtime_env=runtime_env, log_to_driver=True)
    tell_stacks_at_stop()
    resources = ray.cluster_resources()
    wanted = job.train.num_gpus
    has_gpu_model = any(name.startswith("accelerator_type:") for name in resources)
    if resources.get("GPU", 0) < wanted or (engine.device == "cuda") != has_gpu_model:
        raise CannotStart(
            f"the cluster offers {resources.get('GPU', 0):g} GPUs ({'real' if has_gpu_model else 'logical'}), this run "
            f"wants {wanted} for engine.device={engine.device}; bring the nodes up or change the settings"
        )
    sync_registries()


def main(argv: list[str]) -> None:
    job = TrainJob.model_validate_json(argv[1])
    log = EventLog(RunDirs(job.train.shared_dir, job.run_name).events, RunGauges(job.run_name).hear)
    try:
        run(job, log)
    except Exception as error:
        root = root_of(error)
        log.emit(Fault(boundary=type(root).__name__, message=words_of(root), fatal=True))
        raise


if __name__ == "__main__":
    clean_output()
    main(sys.argv)
