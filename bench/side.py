"""One side of the comparison, as a Ray job: ``python -m bench.side ours|stock|stock_closing_once steps|curve JSON``.

``stock`` is SkyRL's own VLM generator and policy worker on vLLM's own CPU worker and executor; trainer, model, mazes,
seeds and batch are the same. With ``curve`` the job trains and evaluates as any. With ``steps`` rollouts are timed
first, of 64 mazes that this engine has not seen, greedy: 15 turns, 5 turns, and 15 turns of the base model.
Then come real GRPO steps, which report their own times. Numbers leave as Metrics events.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import psutil
import ray
from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_sampling_params_for_backend
from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
from skyrl.train.generators.skyrl_vlm_generator import SkyRLVLMGymGenerator
from skyrl.train.generators.utils import prepare_generator_input

from bench.names import FIRST_ROLLOUT
from rl.events import EventLog, Progress
from rl.grpo.config_table import RunDirs
from rl.grpo.experiment import MazeExperiment, MazeTrainer
from rl.grpo.job import run
from rl.grpo.settings import TrainJob
from rl.output import clean_output

NUM_EPISODES = 64


class StockGenerator(SkyRLVLMGymGenerator):
    """SkyRL's generator, unchanged; only keeps what MazeTrainer reports on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.outcomes: list[Any] = []
        self.num_dropped = 0

    async def generate(self, input_batch: Any, disable_tqdm: bool = False) -> Any:
        output = await super().generate(input_batch, disable_tqdm)
        self.outcomes = [metrics["outcome"] for metrics in output["env_metrics"] or []]
        return output

    async def aclose(self) -> None:
        client: Any = self.inference_engine_client
        await client.aclose()


class ClosingOnceGenerator(StockGenerator):
    """SkyRL's generator on turns that the template alone closes.

    SkyRL's client leaves the end of turn in a reply's text and the template adds another. The base model has never seen
    two: the policy that starts to learn is another one.
    """

    async def _render_conversation(self, conversation: Any) -> Any:
        end: Any = self.tokenizer.eos_token
        closed = [
            {**message, "content": message["content"].removesuffix(end)} if message["role"] == "assistant" else message
            for message in conversation
        ]
        return await super()._render_conversation(closed)


class BenchTrainer(MazeTrainer):
    """Measures rollouts where the evaluation of step 0 would be, and evaluates nothing else."""

    async def eval(self, vllm_metrics_scraper: Any = None) -> dict[str, float]:
        if self.global_step > 0:
            return {}
        plans = {"warm_up": (2, False), "turns_15": (15, False), "turns_5": (5, False), "base_turns_15": (15, True)}
        found: dict[str, float] = {}
        self._log.emit(Progress(done=0, total=len(plans), text=FIRST_ROLLOUT))
        for number, (name, (max_turns, base)) in enumerate(plans.items()):
            found |= await self._timed_rollouts(name, number, max_turns, base)
            self._log.emit(
                Progress(done=number + 1, total=len(plans), text=f"{name}: {found[f'bench/{name}_s']:.1f} s")
            )
        return found

    async def _timed_rollouts(self, name: str, number: int, max_turns: int, base: bool) -> dict[str, float]:
        first = number * NUM_EPISODES
        dataset: Any = self.train_dataset
        rows = [dataset[index] for index in range(first, first + NUM_EPISODES)]
        config: Any = self.cfg.generator
        sampling = get_sampling_params_for_backend("vllm", config.eval_sampling_params)
        batch, _ = prepare_generator_input(dataset.collate_fn(rows), 1, sampling, "maze_2d", "eval", 0)
        generator: Any = self.generator
        usual = generator.max_turns, generator.policy_model_name
        generator.max_turns = max_turns
        # By name: stock SkyRL refuses to guess, where an adapter is trained.
        generator.policy_model_name = generator.inference_engine_client.model_name if base else usual[1]
        started, busy_s = time.monotonic(), engine_busy_s()
        await generator.generate(batch, disable_tqdm=True)
        took_s, busy_s = time.monotonic() - started, engine_busy_s() - busy_s
        generator.max_turns, generator.policy_model_name = usual
        num_turns = sum(outcome.num_turns for outcome in generator.outcomes)
        return {f"bench/{name}_s": took_s, f"bench/{name}_turns": num_turns, f"bench/{name}_busy": busy_s / took_s}


def engine_busy_s() -> float:
    """CPU seconds that the main thread of this job's engine has run; it sleeps whenever it has nothing to do."""
    job_id = ray.get_runtime_context().get_job_id()
    for process in psutil.process_iter():
        if process.name().startswith("VLLM::Engine") and process.environ().get("RAY_JOB_ID") == job_id:
            main = next(thread for thread in process.threads() if thread.id == process.pid)
            return main.user_time + main.system_time
    raise RuntimeError("no process of this job is called VLLM::EngineCore; has vLLM changed its processes' names?")


class BenchExperiment(MazeExperiment):
    """This project's generator and policy worker."""

    def get_trainer(self, **parts: Any) -> MazeTrainer:  # type: ignore[override]
        return BenchTrainer(**parts, **self.trainer_parts())


class StockExperiment(MazeExperiment):
    """SkyRL's generator and policy worker."""

    generator_type: type[StockGenerator] = StockGenerator

    def trainer_parts(self) -> dict[str, Any]:
        return {**super().trainer_parts(), "policy_worker": self._policy_worker}

    def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> Any:
        return self.generator_type(
            generator_cfg=cfg.generator,
            skyrl_gym_cfg=cfg.environment.skyrl_gym,
            inference_engine_client=inference_engine_client,
            tokenizer=tokenizer,
            policy_model_name=resolve_policy_model_name(cfg),
        )


class StockBenchExperiment(StockExperiment, BenchExperiment):
    """SkyRL's, measured."""


class ClosingOnceExperiment(StockExperiment):
    """SkyRL's, but for one token a turn."""

    generator_type = ClosingOnceGenerator


EXPERIMENTS: dict[tuple[str, str], type[MazeExperiment]] = {
    ("ours", "steps"): BenchExperiment,
    ("ours", "curve"): MazeExperiment,
    ("stock", "steps"): StockBenchExperiment,
    ("stock", "curve"): StockExperiment,
    ("stock_closing_once", "curve"): ClosingOnceExperiment,
}


def main(argv: list[str]) -> None:
    side, what, job = argv[1], argv[2], TrainJob.model_validate_json(argv[3])
    log = EventLog(RunDirs(job.train.shared_dir, job.run_name).events)
    log.emit(Progress(done=0, total=1, text=f"{side} starts in process {os.getpid()}"))
    experiment = EXPERIMENTS[side, what]
    if side != "ours":
        run(job, log, experiment, cpu_executor="mp")
    else:
        run(job, log, experiment)


if __name__ == "__main__":
    clean_output()
    main(sys.argv)
