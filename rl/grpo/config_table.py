"""One table: our settings -> SkyRL's dotted keys. Pure; nothing of SkyRL is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl.grpo.settings import TrainJob
from rl.maze.score import GREEDY

SkyRLOverrides = dict[str, Any]


class RunDirs:
    """Where one run keeps its things, on the file system that every node sees."""

    def __init__(self, shared_dir: str, run_name: str) -> None:
        self.root = Path(shared_dir).resolve() / "runs" / run_name
        self.checkpoints = self.root / "checkpoints"
        self.exports = self.root / "exports"
        self.lora_sync = self.root / "lora_sync"
        self.logs = self.root / "logs"
        self.train_rows = self.root / "data" / "train.parquet"
        self.eval_rows = self.root / "data" / "eval.parquet"
        self.events = self.root / "events.jsonl"
        self.order = self.root / "train_job.json"


def skyrl_overrides(job: TrainJob, dirs: RunDirs, resume_path: str | None) -> SkyRLOverrides:
    """Every SkyRL setting that this project decides; SkyRL's defaults hold for the rest."""
    train = job.train
    return {
        **_model_and_algorithm(job, dirs),
        **_batches(job),
        **_engine(job),
        "data.train_data": [str(dirs.train_rows)],
        "data.val_data": [str(dirs.eval_rows)],
        # Rows are small: reading them in this process is quicker than starting workers.
        "data.dataloader.num_workers": 0,
        "environment.env_class": "maze_2d",
        "trainer.run_name": job.run_name,
        "trainer.project_name": "maze-retrain",
        "trainer.logger": "console",
        "trainer.print_example_interval": -1,
        "trainer.enable_ray_gpu_monitor": train.engine.device == "cuda",
        "trainer.eval_interval": train.eval_interval,
        "trainer.eval_before_train": True,
        "trainer.eval_batch_size": 1024,
        "trainer.dump_eval_results": True,
        "trainer.ckpt_interval": train.export_interval,
        "trainer.hf_save_interval": train.export_interval,
        "trainer.max_ckpts_to_keep": train.max_checkpoints_to_keep,
        "trainer.ckpt_path": str(dirs.checkpoints),
        "trainer.export_path": str(dirs.exports),
        "trainer.log_path": str(dirs.logs),
        "trainer.resume_mode": "from_path" if resume_path else "none",
        "trainer.resume_path": resume_path,
    }


def _model_and_algorithm(job: TrainJob, dirs: RunDirs) -> SkyRLOverrides:
    train, grpo = job.train, job.train.grpo
    return {
        "trainer.strategy": "fsdp",
        "trainer.policy.model.path": train.model_path,
        "trainer.policy.model.lora.rank": train.lora.rank,
        "trainer.policy.model.lora.alpha": train.lora.alpha,
        "trainer.policy.model.lora.target_modules": train.lora.target_modules,
        "trainer.policy.model.lora.exclude_modules": train.lora.exclude_modules,
        "trainer.policy.model.lora.lora_sync_path": str(dirs.lora_sync),
        "trainer.policy.optimizer_config.lr": grpo.learning_rate,
        "trainer.policy.optimizer_config.scheduler": grpo.learning_rate_schedule,
        "trainer.policy.optimizer_config.num_warmup_steps": grpo.warmup_steps,
        "trainer.algorithm.advantage_estimator": "grpo",
        "trainer.algorithm.policy_loss_type": grpo.policy_loss,
        "trainer.algorithm.loss_reduction": grpo.loss_reduction,
        "trainer.algorithm.eps_clip_low": grpo.clip_low,
        "trainer.algorithm.eps_clip_high": grpo.clip_high,
        "trainer.algorithm.use_kl_loss": grpo.kl_loss_coef > 0,
        "trainer.algorithm.kl_loss_coef": grpo.kl_loss_coef,
        "trainer.update_epochs_per_batch": grpo.update_epochs,
        "trainer.gradient_checkpointing": grpo.gradient_checkpointing,
        "trainer.bf16": train.engine.dtype == "bfloat16",
        # Left out, FSDP multiplies in bfloat16 whatever the engine's dtype: other numbers than the engine's, and on a
        # processor without such instructions many times slower ones.
        **_mixed_precision(train.engine.dtype),
        "trainer.seed": grpo.seed,
        # The VLM path wants whole padded micro-batches, and SDPA in place of flash attention.
        "trainer.remove_microbatch_padding": False,
        "trainer.flash_attn": train.engine.device == "cuda",
        "trainer.placement.colocate_all": train.engine.colocate,
        "trainer.placement.policy_num_nodes": train.num_policy_nodes,
        "trainer.placement.policy_num_gpus_per_node": train.num_gpus_per_node,
        "trainer.placement.ref_num_nodes": train.num_policy_nodes,
        "trainer.placement.ref_num_gpus_per_node": train.num_gpus_per_node,
    }


def _mixed_precision(dtype: str) -> SkyRLOverrides:
    prefix = "trainer.policy.fsdp_config.mixed_precision"
    param_dtype = {"float32": "fp32", "bfloat16": "bf16"}[dtype]
    return {f"{prefix}.param_dtype": param_dtype, f"{prefix}.reduce_dtype": "fp32", f"{prefix}.buffer_dtype": "fp32"}


def _batches(job: TrainJob) -> SkyRLOverrides:
    grpo = job.train.grpo
    max_input_length = job.train.engine.max_model_len - grpo.max_reply_tokens
    steps_per_epoch = job.train.data.num_train_mazes // grpo.mazes_per_step
    return {
        "trainer.epochs": -(-grpo.max_steps // steps_per_epoch),
        "trainer.max_training_steps": grpo.max_steps,
        "trainer.train_batch_size": grpo.mazes_per_step,
        "trainer.policy_mini_batch_size": grpo.mini_batch_mazes,
        "trainer.micro_train_batch_size_per_gpu": grpo.micro_batch_size,
        "trainer.micro_forward_batch_size_per_gpu": grpo.micro_batch_size,
        "trainer.max_prompt_length": max_input_length,
        "generator.n_samples_per_prompt": grpo.rollouts_per_maze,
        "generator.eval_n_samples_per_prompt": 1,
        "generator.max_turns": job.train.data.max_turns,
        "generator.max_input_length": max_input_length,
        "generator.sampling_params.max_generate_length": grpo.max_reply_tokens,
        "generator.sampling_params.temperature": grpo.temperature,
        "generator.eval_sampling_params.max_generate_length": grpo.max_reply_tokens,
        "generator.eval_sampling_params.temperature": GREEDY,
        "generator.batched": False,
        "generator.vision_language_generator": True,
    }


def _engine(job: TrainJob) -> SkyRLOverrides:
    engine = job.train.engine
    images = {"image": job.train.data.max_turns, "video": 0}
    init_kwargs = {
        "max_model_len": engine.max_model_len,
        "limit_mm_per_prompt": images,
        # SkyRL sets 0, because vLLM's /render once left out what was cached. It no longer reads that cache, and
        # rl/grpo/rollouts/engine_client.py sends a picture once because of it.
        "mm_processor_cache_gb": engine.picture_cache_gb,
        # SkyRL turns enforce_eager off when LoRA is on; engine_init_kwargs have the last word.
        "enforce_eager": engine.enforce_eager,
        **engine.init_kwargs,
    }
    prefix = "generator.inference_engine"
    return {
        f"{prefix}.num_engines": engine.num_engines,
        f"{prefix}.tensor_parallel_size": 1,
        f"{prefix}.model_dtype": engine.dtype,
        f"{prefix}.gpu_memory_utilization": engine.gpu_memory_utilization,
        f"{prefix}.max_num_seqs": engine.max_num_seqs,
        f"{prefix}.max_num_batched_tokens": engine.max_num_batched_tokens,
        f"{prefix}.enable_prefix_caching": True,
        f"{prefix}.distributed_executor_backend": "mp",
        f"{prefix}.engine_init_kwargs": init_kwargs,
    }
