"""Multi-turn image rollouts for SkyRL: renders only what a turn adds, and survives a broken trajectory.

SkyRL's own generator renders the whole conversation again each turn and cuts the new observation out by
length. Text that does not re-tokenise to the generated ids then shifts the cut, and one such trajectory ends
the run. Here the generated ids stay as they are and the observation's ids are appended, so nothing can drift;
what remains is a reply that holds image tokens of its own, which costs that trajectory and is counted. Pictures travel
to the engine once (rl/grpo/rollouts/engine_client.py).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import uuid4

import skyrl_gym
from skyrl.backends.renderer import decode_mm_kwargs
from skyrl.backends.skyrl_train.inference_servers.remote_inference_client import RemoteGenerateClient
from skyrl.train.generators.base import TRAINING_PHASE_TRAIN, TrainingPhase, TrajectoryID
from skyrl.train.generators.skyrl_gym_generator import TrajectoryOutput
from skyrl.train.generators.skyrl_vlm_generator import SkyRLVLMGymGenerator

from rl.grpo.rollouts.engine_client import Pictures, PicturesOnce
from rl.grpo.rollouts.render_cache import RenderCache
from rl.maze.prompts import Stop, action_text
from rl.maze.score import Outcome

RENDER_CACHE_BYTES = 512 * 2**20
_REPLY = action_text(Stop())


@dataclass
class _Trajectory:
    """Token-level record of one episode; lists run over the response tokens [T]."""

    prompt_ids: list[int]
    images: Pictures
    """All images so far, offsets counted from the prompt's start."""
    response_ids: list[int] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        return self.prompt_ids + self.response_ids

    def add_reply(self, ids: list[int], logprobs: list[float], reward: float) -> None:
        self.response_ids += ids
        self.loss_mask += [1] * len(ids)
        self.logprobs += logprobs
        self.rewards += [0.0] * (len(ids) - 1) + [reward] if ids else []

    def add_observation(self, ids: list[int], images: Pictures) -> None:
        start = len(self.prompt_ids) + len(self.response_ids)
        self.response_ids += ids
        self.loss_mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.rewards += [0.0] * len(ids)
        for name, items in _shifted(images, start).items():
            self.images[name] += items

    def drop(self) -> None:
        """Take the trajectory out of the loss and out of its group's successes."""
        self.loss_mask = [0] * len(self.loss_mask)
        self.rewards = [0.0] * len(self.rewards)


def _images(features: dict[str, Any] | None) -> Pictures:
    names = ("mm_hashes", "mm_placeholders", "kwargs_data")
    return {name: list(((features or {}).get(name) or {}).get("image", [])) for name in names}


def _shifted(images: Pictures, by: int) -> Pictures:
    placeholders = [{**place, "offset": place["offset"] + by} for place in images["mm_placeholders"]]
    return {**images, "mm_placeholders": placeholders}


class PrefixPropertyBroken(RuntimeError):
    """The chat template does not extend a conversation by appending tokens."""


class MazeGenerator(SkyRLVLMGymGenerator):
    """SkyRL's VLM generator with incremental rendering; keeps the outcomes of the last batch for the evaluation."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        client: Any = self.inference_engine_client
        self._remote = RemoteGenerateClient(proxy_url=client.proxy_url)
        self._engine = PicturesOnce(self._remote, num_engines=len(client.server_urls))
        self._closing_ids = self._ids_after_reply()
        names = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
        self._vision_ids = set(self.tokenizer.convert_tokens_to_ids(list(names)))
        self._prefix_checked = False
        self._render_cached = RenderCache(self._render_conversation, RENDER_CACHE_BYTES)  # type: ignore[arg-type]
        self.outcomes: list[Outcome] = []
        self.num_dropped = 0

    def _ids_after_reply(self) -> list[int]:
        """What the chat template puts between a reply and the next message: end of turn, then its separator."""
        question = {"role": "user", "content": "a"}
        head = self.tokenizer.apply_chat_template([question], tokenize=False, add_generation_prompt=True)
        both = self.tokenizer.apply_chat_template([question, {"role": "assistant", "content": "b"}], tokenize=False)
        if not both.startswith(head + "b"):
            raise PrefixPropertyBroken(
                "the chat template rewrites earlier turns, so a reply cannot be kept as generated; use a template "
                "that only appends (Qwen3-VL's does, thinking templates do not)"
            )
        return self.tokenizer.encode(both[len(head) + 1 :], add_special_tokens=False)

    async def aclose(self) -> None:
        """Close the HTTP sessions of both engine clients."""
        client: Any = self.inference_engine_client
        await self._remote.aclose()
        await client.aclose()

    async def generate(self, input_batch: Any, disable_tqdm: bool = False) -> Any:
        self._engine.forget()
        output = await super().generate(input_batch, disable_tqdm)
        played: list[dict[str, Any]] = output["env_metrics"] or []
        self.outcomes = [metrics["outcome"] for metrics in played]
        self.num_dropped = sum(metrics["dropped"] for metrics in played)
        return output

    async def agent_loop(  # type: ignore[override]
        self,
        prompt: Any,
        env_class: str,
        env_extras: dict[str, Any],
        max_tokens: int,
        max_input_length: int,
        sampling_params: dict[str, Any] | None = None,
        trajectory_id: TrajectoryID | None = None,
        cache_salt: str | None = None,
        training_phase: TrainingPhase = TRAINING_PHASE_TRAIN,
    ) -> TrajectoryOutput:
        """Play one episode and return its tokens, losses and images."""
        session_id = f"{trajectory_id.instance_id}_{trajectory_id.repetition_id}" if trajectory_id else uuid4().hex
        sampling = sampling_params if sampling_params is not None else asdict(self.generator_cfg.sampling_params)
        env: Any = skyrl_gym.make(env_class, env_config={}, extras={**env_extras, "max_turns": self.max_turns})
        try:
            return await self._play(session_id, env, prompt, max_input_length, sampling, cache_salt)
        finally:
            # SkyRL's client would tell the router that the session ended; its policy (consistent hash) keeps none and
            # answers 404, one log line an episode.
            self._engine.forget(session_id)

    async def _play(
        self,
        session_id: str,
        env: Any,
        prompt: Any,
        max_input_length: int,
        sampling: dict[str, Any],
        cache_salt: str | None,
    ) -> TrajectoryOutput:
        started = time.monotonic()
        spent = {"llm": 0.0, "render": 0.0, "env": 0.0}
        conversation, _ = await self._timed(spent, "env", env.init, prompt)
        ids, images = await self._render_message(spent, conversation)
        trajectory = _Trajectory(prompt_ids=ids, images=_shifted(images, 0))
        stop_reason, dropped, done = "stop", False, False
        while not done:
            if len(trajectory.ids) > max_input_length:
                stop_reason = "length"
                break
            reply_ids, logprobs, stop_reason = await self._reply(spent, session_id, trajectory, sampling, cache_salt)
            dropped = not self._vision_ids.isdisjoint(reply_ids)
            if dropped:
                # The training forward counts image tokens against images: these have none.
                # The environment never sees the reply, so that it cannot count as solved either.
                eos = self.tokenizer.eos_token_id
                trajectory.add_reply([eos if i in self._vision_ids else i for i in reply_ids], logprobs, 0.0)
                break
            text = self.tokenizer.decode(reply_ids, skip_special_tokens=True)
            step = await self._timed(spent, "env", env.step, text)
            trajectory.add_reply(reply_ids, logprobs, float(step["reward"]))
            done = step["done"]
            if not done:
                observation, images = await self._render_message(spent, step["observations"])
                await self._check_prefix_once(conversation, step["observations"], trajectory.prompt_ids, observation)
                trajectory.add_observation(
                    self._joint(reply_ids) + observation, _shifted(images, len(self._joint(reply_ids)))
                )
        if dropped:
            trajectory.drop()
        metrics = {**env.get_metrics(), "dropped": int(dropped)}
        await self._timed(spent, "env", env.close)
        pixels = decode_mm_kwargs({"image": trajectory.images["kwargs_data"]})
        return TrajectoryOutput(
            response_ids=trajectory.response_ids,
            reward=trajectory.rewards,
            stop_reason=stop_reason,
            loss_mask=trajectory.loss_mask,
            prompt_ids=trajectory.prompt_ids,
            rollout_logprobs=trajectory.logprobs if sampling.get("logprobs") is not None else None,
            env_metrics=metrics,
            pixel_values=pixels["pixel_values"],
            image_grid_thw=pixels["image_grid_thw"],
            e2e_time=time.monotonic() - started,
            time_splits=spent,
        )

    def _joint(self, reply_ids: list[int]) -> list[int]:
        """Template tokens between this reply and the next message; the engine returns the end of turn itself."""
        ended = bool(reply_ids) and reply_ids[-1] == self._closing_ids[0]
        return self._closing_ids[1:] if ended else self._closing_ids

    async def _timed(self, spent: dict[str, float], name: str, call: Any, *args: Any) -> Any:
        started = time.monotonic()
        result = await self._run_in_executor_if_available(call, *args)
        spent[name] += time.monotonic() - started
        return result

    async def _render_message(self, spent: dict[str, float], messages: Any) -> tuple[list[int], Pictures]:
        """Ids (with the generation prompt) and images of messages on their own."""
        started = time.monotonic()
        rendered = await self._render_cached(messages)
        spent["render"] += time.monotonic() - started
        return rendered["prompt_ids"], _images(rendered["features"])  # type: ignore[arg-type]

    async def _reply(
        self,
        spent: dict[str, float],
        session_id: str,
        trajectory: _Trajectory,
        sampling: dict[str, Any],
        cache_salt: str | None,
    ) -> tuple[list[int], list[float], str]:
        started = time.monotonic()
        result = await self._engine.generate(
            session_id=session_id,
            pictures=trajectory.images,
            prompt_token_ids=trajectory.ids,
            sampling_params=sampling,
            model=self.policy_model_name or self.inference_engine_client.model_name,
            cache_salt=cache_salt,
        )
        spent["llm"] += time.monotonic() - started
        ids = list(result.response_ids)
        return ids, list(result.response_logprobs or [0.0] * len(ids)), result.stop_reason

    async def _check_prefix_once(
        self, opening: Any, observations: Any, opening_ids: list[int], observation_ids: list[int]
    ) -> None:
        """Render one conversation of two turns whole and compare: appending must give what the template gives.

        The reply in between is a well-formed action: what a model says may not re-tokenise to the ids it
        generated, which is exactly why those ids are kept.
        """
        if self._prefix_checked:
            return
        self._prefix_checked = True
        whole = await self._render_conversation([*opening, {"role": "assistant", "content": _REPLY}, *observations])
        said = self.tokenizer.encode(_REPLY, add_special_tokens=False)
        appended = opening_ids + said + self._closing_ids + observation_ids
        if whole["prompt_ids"] != appended:
            raise PrefixPropertyBroken(
                f"rendering two turns gives {len(whole['prompt_ids'])} tokens, appending gives {len(appended)}, and "
                "they differ: the processor or chat template does not extend conversations; use one that only appends"
            )
