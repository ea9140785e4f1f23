"""Stage: the evaluation mazes through an OpenAI-compatible endpoint: what users get, not what training saw."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rl.maze.episode import Episode, Seen
from rl.maze.eval_set import EvalSet
from rl.maze.pictures import image_message
from rl.maze.run_mazes import prepare_mazes
from rl.maze.score import EvalReport, Outcome, make_report
from rl.settings import DataSettings
from serving.app import CHAMPION
from tasks.errors import WrongModelAnswered
from tasks.records import ServedModel
from tasks.release.openai_chat import ChatEndpoint
from tasks.release.settings import EvaluationSettings
from tasks.run import RunContext
from tasks.stage import named_stage


@named_stage("evaluate-{model.model_id}")
def evaluate_endpoint(context: RunContext, settings: EvaluationSettings, model: ServedModel) -> EvalReport:
    """Play every maze of the set once; raises what the endpoint raises, and EvalSetMismatch before the first maze."""

    def progress(done: int, total: int) -> None:
        if done % 16 == 0 or done == total:
            context.page.say(f"{model.model_id}: {done} of {total} mazes played")

    eval_set = prepare_mazes(settings.data).eval_set
    report = play_eval_set(settings, model, eval_set, progress)
    context.page.say(f"{model.model_id} solves {report.num_solved} of {report.num_mazes}")
    return report


def play_eval_set(
    settings: EvaluationSettings,
    model: ServedModel,
    eval_set: EvalSet,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> EvalReport:
    """Play every maze of the set once, ``num_concurrent`` at a time."""
    data, play = settings.data, settings.play
    seeds = [maze.seed for maze in eval_set.mazes]
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(play.num_concurrent) as pool:
        played = pool.map(
            lambda seed: play_maze(ChatEndpoint(model.url), model.model_id, seed, data, play.max_reply_tokens), seeds
        )
        for done, outcome in enumerate(played, start=1):
            outcomes.append(outcome)
            progress(done, len(seeds))
    return make_report(model.step, eval_set.sha256, model.model_id, seeds, outcomes)


def play_maze(
    endpoint: ChatEndpoint,
    model: str,
    seed: int,
    data: DataSettings,
    max_reply_tokens: int,
    watch: Callable[[Seen, str], object] = lambda seen, reply: None,
) -> Outcome:
    """One maze, greedily; raises WrongModelAnswered when another model than ``model`` gave a reply.

    ``<base>:champion`` is answered by the adapter that it stands for, the same one throughout a maze. ``watch`` sees
    every picture with the reply to it, and the last picture with an empty one.
    """
    episode = Episode(seed, data.maze, data.parsing, data.max_turns)
    seen = episode.start()
    messages: list[object] = []
    expected = None if model.endswith(f":{CHAMPION}") else model
    while not seen.done:
        messages.append(image_message(seen.text, seen.png))
        reply = endpoint.chat(model, messages, max_reply_tokens)
        expected = expected or reply.model
        if reply.model != expected:
            raise WrongModelAnswered(
                f"asked {model} for maze {seed}, {reply.model} answered where {expected} was expected; was the "
                "champion changed meanwhile, or is another model served under this name?"
            )
        messages.append({"role": "assistant", "content": reply.text})
        watch(seen, reply.text)
        seen = episode.step(reply.text)
    watch(seen, "")
    episode.close()
    return episode.outcome()
