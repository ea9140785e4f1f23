"""Stage: the evaluation mazes through an OpenAI-compatible endpoint: what users get, not what training saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from threading import Event
from typing import Protocol

from urllib3 import Retry

from rl.maze.episode import Episode, Seen
from rl.maze.eval_set import EvalSet
from rl.maze.pictures import image_message
from rl.maze.prompts import spelled_out
from rl.maze.run_mazes import prepare_mazes
from rl.maze.score import GREEDY, EvalReport, EvalRules, Outcome, make_report
from rl.settings import DataSettings
from serving.app import CHAMPION
from tasks.clients.retry import PATIENT
from tasks.errors import ContextExceeded, WrongModelAnswered
from tasks.records import ServedModel
from tasks.release.openai_chat import ChatEndpoint, Reply
from tasks.release.settings import EvaluationSettings
from tasks.run import RunContext
from tasks.stage import named_stage
from tasks.watch import Moved


@named_stage("evaluate-{model.model_id}")
def evaluate_endpoint(context: RunContext, settings: EvaluationSettings, model: ServedModel) -> EvalReport:
    """Play every maze of the set once; raises what the endpoint raises, and EvalSetMismatch before the first maze."""

    def progress(done: int, total: int) -> None:
        context.tell(Moved(done, total, model.model_id, "mazes"))
        if done % 16 == 0 or done == total:
            context.page.say(f"{model.model_id}: {done} of {total} mazes played")

    eval_set = prepare_mazes(settings.data).eval_set
    report = play_eval_set(settings, model, eval_set, progress)
    alias = "" if report.model_id == model.model_id else f" ({report.model_id} answered)"
    context.page.say(f"{model.model_id}{alias} solves {report.num_solved} of {report.num_mazes}")
    return report


def play_eval_set(
    settings: EvaluationSettings,
    model: ServedModel,
    eval_set: EvalSet,
    progress: Callable[[int, int], object] = lambda done, total: None,
    retry: Retry = PATIENT,
) -> EvalReport:
    """Play every maze of the set once, ``num_concurrent`` at a time; the report names the model that answered.

    The first final error ends it: mazes under way stop at their next turn, the rest are not begun. Raises
    WrongModelAnswered also where an alias stood for two models in the course of the evaluation.
    """
    data, play = settings.data, settings.play
    seeds = [maze.seed for maze in eval_set.mazes]
    stop = Event()

    def play_one(seed: int) -> Played:
        with ChatEndpoint(model.url, retry=retry) as endpoint:
            return play_maze(_Until(stop, endpoint), model.model_id, seed, data, play.max_reply_tokens)

    played: list[Played] = []
    with ThreadPoolExecutor(play.num_concurrent) as pool:
        games = [pool.submit(play_one, seed) for seed in seeds]
        try:
            for done, game in enumerate(as_completed(games), start=1):
                played.append(game.result())
                progress(done, len(seeds))
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    answered_by = {one.model for one in played if one.model}
    if len(answered_by) > 1:
        raise WrongModelAnswered(
            f"{model.model_id} was answered by {' and '.join(sorted(answered_by))} in one evaluation; was the champion "
            "changed meanwhile? Evaluate it again"
        )
    (name,) = answered_by or {model.model_id}
    rules = EvalRules(
        eval_set_sha256=eval_set.sha256,
        maze=data.maze,
        max_turns=data.max_turns,
        parsing=data.parsing,
        max_reply_tokens=play.max_reply_tokens,
        temperature=GREEDY,
    )
    return make_report(model.step, rules, name, seeds, [one.outcome for one in played], settings.conditions)


@dataclass(frozen=True)
class Played:
    """One maze, and who played it."""

    outcome: Outcome
    model: str
    """As the endpoint named it; empty where not even the first turn was answered."""


class Chats(Protocol):
    """Answers turn by turn."""

    def chat(self, model: str, messages: Sequence[object], max_tokens: int) -> Reply: ...


class _Until:
    """Chats until somebody says stop."""

    def __init__(self, stop: Event, endpoint: ChatEndpoint) -> None:
        self._stop, self._endpoint = stop, endpoint

    def chat(self, model: str, messages: Sequence[object], max_tokens: int) -> Reply:
        if self._stop.is_set():
            raise CancelledError(f"{model}: another maze has ended the evaluation")
        return self._endpoint.chat(model, messages, max_tokens)


def play_maze(
    endpoint: Chats,
    model: str,
    seed: int,
    data: DataSettings,
    max_reply_tokens: int,
    watch: Callable[[Seen, str], object] = lambda seen, reply: None,
) -> Played:
    """One maze, greedily; raises WrongModelAnswered when another model than ``model`` gave a reply.

    ``<base>:champion`` is answered by the adapter that it stands for, the same one throughout a maze. A conversation
    that outgrows the model ends the maze unsolved, as in training. ``watch`` sees every picture with the reply to it,
    and the last picture with an empty one.
    """
    episode = Episode(seed, data.maze, data.parsing, data.max_turns)
    seen = episode.start()
    messages: list[object] = []
    answered_by = ""
    try:
        while not seen.done:
            messages.append(image_message(seen.text, seen.png))
            try:
                reply = endpoint.chat(model, messages, max_reply_tokens)
            except ContextExceeded:
                break
            _require_answer_of(model, answered_by, reply.model, seed)
            answered_by = reply.model
            messages.append({"role": "assistant", "content": spelled_out(reply.text)})
            watch(seen, reply.text)
            seen = episode.step(reply.text)
        watch(seen, "")
        return Played(episode.outcome(), answered_by)
    finally:
        episode.close()


def _require_answer_of(model: str, before: str, answered: str, seed: int) -> None:
    """The model itself; for the champion's name an adapter of its base, the one that answered before."""
    base, _, adapter = model.rpartition(":")
    alias = adapter == CHAMPION
    wanted = before or ("" if alias else model)
    right = answered == wanted if wanted else answered.startswith(f"{base}:") and answered not in (model, f"{base}:")
    if not right:
        raise WrongModelAnswered(
            f"asked {model} for maze {seed}, {answered} answered where {wanted or f'an adapter of {base}'} was "
            "expected; was the champion changed meanwhile, or is another model served under this name?"
        )
