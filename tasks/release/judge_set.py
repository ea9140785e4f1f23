"""Stages: the judge set is drawn, and played by whoever may become champion and whom it has to beat.

The mazes that choose the best step cannot also judge it: the luckiest step was chosen. The judge set is fresh in each
run and disjoint from what the run trains on and chooses by. Base and champion need not play it twice: what an earlier
attempt of the run kept is recalled where all that could change it is the same.
"""

from __future__ import annotations

import hashlib
import json

from pydantic import ValidationError

from rl.maze.eval_set import EvalSet
from rl.maze.run_mazes import draw_judge_mazes
from rl.maze.score import EvalReport
from tasks.errors import TrackingUnavailable
from tasks.records import Contest, Evaluations, JudgeSet, Record, ServedModel
from tasks.release.evaluate import play_eval_set
from tasks.release.settings import EvaluationSettings, JudgeMazesSettings
from tasks.run import RunContext
from tasks.stage import stage
from tasks.watch import Moved

JUDGE_SET = "judge/judge_set.json"


@stage
def draw_judge_set(context: RunContext, settings: JudgeMazesSettings) -> JudgeSet:
    """The mazes that decide, from the run's name, kept in MLflow; raises NotEnoughMazes."""
    mazes = draw_judge_mazes(settings.data, context.run_name, settings.num_mazes)
    drawn = JudgeSet(
        name=f"judge-{context.run_name}",
        sha256=mazes.sha256,
        mazes=mazes,
        ceiling=mazes.ceiling(settings.data.max_turns),
    )
    context.run.text(drawn.model_dump_json(indent=1), JUDGE_SET)
    return drawn


@stage
def play_judge_set(
    context: RunContext, settings: EvaluationSettings, judge_set: JudgeSet, contest: Contest
) -> Evaluations:
    """All of them on the same mazes through the same endpoint; the candidate always anew, by the endpoint of now."""
    candidate = _play(context, settings, judge_set.mazes, contest.candidate)
    recalled: list[str] = []

    def opponent(model: ServedModel) -> EvalReport:
        known = Kept.about(settings, judge_set, model)
        report = _recall(context, known)
        if report is not None:
            recalled.append(model.model_id)
            context.page.say(f"{model.model_id} has played this judge set under the same conditions: recalled")
            return report
        report = _play(context, settings, judge_set.mazes, model)
        if model.sha256:
            kept = known.model_copy(update={"report": report})
            context.run.text(kept.model_dump_json(indent=1), known.path)
        return report

    base = opponent(contest.base)
    champion = opponent(contest.champion) if contest.champion else None
    return Evaluations(judge_set=judge_set, candidate=candidate, base=base, champion=champion, recalled=tuple(recalled))


class Kept(Record):
    """One opponent's evaluation, with all that it was played with."""

    model_id: str
    model_sha256: str
    """Of the weights."""
    settings_sha256: str
    """Of the mazes, the rules and the conditions: engine, software, how many mazes at a time."""
    report: EvalReport | None = None

    @classmethod
    def about(cls, settings: EvaluationSettings, judge_set: JudgeSet, model: ServedModel) -> Kept:
        """What is to be played; without a report yet."""
        document = json.dumps([judge_set.sha256, settings.model_dump(mode="json")], sort_keys=True)
        sha256 = hashlib.sha256(document.encode()).hexdigest()
        return cls(model_id=model.model_id, model_sha256=model.sha256, settings_sha256=sha256)

    @property
    def path(self) -> str:
        """Where it is kept in the run; another evaluation lies elsewhere."""
        key = f"{self.model_id} {self.model_sha256} {self.settings_sha256}"
        return f"judge/{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def _recall(context: RunContext, wanted: Kept) -> EvalReport | None:
    """What an earlier attempt kept; None where it is not the same to the letter, or nobody can say."""
    if not wanted.model_sha256:
        return None
    try:
        text = context.run.read(wanted.path)
        found = None if text is None else Kept.model_validate_json(text)
    except (TrackingUnavailable, ValidationError) as error:
        context.page.say(f"{wanted.model_id} plays the judge set anew: {wanted.path} cannot be read ({error})")
        return None
    if found is None or found.model_copy(update={"report": None}) != wanted:
        return None
    return found.report


def _play(context: RunContext, settings: EvaluationSettings, mazes: EvalSet, model: ServedModel) -> EvalReport:
    def progress(done: int, total: int) -> None:
        context.tell(Moved(done, total, f"{model.model_id}, judge set", "mazes"))
        if done % 32 == 0 or done == total:
            context.page.say(f"{model.model_id}: {done} of {total} judge mazes played")

    report = play_eval_set(settings, model, mazes, progress)
    context.page.say(f"{model.model_id} solves {report.num_solved} of {report.num_mazes} judge mazes")
    return report
