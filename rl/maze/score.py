"""What one evaluation found: per-maze outcomes and the honest solve rate. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rl.maze.prompts import Action, Move, ParsingMode, Stop
from rl.settings import MazeSettings, differences

MOVE_LETTERS = "RULD"
"""One letter per direction 0..3; ``S`` is the stop and ``?`` a reply without an action."""


def action_letter(action: Action) -> str:
    """How one turn is written in an outcome."""
    if isinstance(action, Move):
        return MOVE_LETTERS[action.direction]
    return "S" if isinstance(action, Stop) else "?"


MAX_WORDS = 48_000
"""Characters of replies that an evaluation's event keeps: an event is a line of a job's log."""


class Said(BaseModel):
    """What was said in a turn where that does not follow from its letter."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    turn: int
    """Counts from 0."""
    reply: str | None = None
    """What the agent wrote, where that is not the tuple of its action to the letter."""
    num_left_out: int = 0
    """Characters of a reply that is not kept."""
    feedback: str | None = None
    """What the environment answered, where that is neither EXECUTED nor HIT_WALL."""


class Outcome(BaseModel):
    """One maze, played to its end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int
    solved: bool
    """The agent said stop on the target and the environment paid for it; a shaped reward never counts."""
    actions: str
    """One letter a turn, see MOVE_LETTERS."""
    unparsable_replies: int
    said: tuple[Said, ...] | None = None
    """The turns that their letters do not tell whole; None in records of players whose words nobody kept."""

    @property
    def num_turns(self) -> int:
        return len(self.actions)


def fewer_words(outcomes: Iterable[Outcome], max_words: int) -> tuple[Outcome, ...]:
    """The same, without the replies that exceed so many characters together; the first turns keep theirs."""
    left, found = max_words, []
    for outcome in outcomes:
        kept = []
        for one in outcome.said or ():
            size = len(one.reply or "")
            left -= size
            kept.append(one if left >= 0 else one.model_copy(update={"reply": None, "num_left_out": size}))
        found.append(outcome if outcome.said is None else outcome.model_copy(update={"said": tuple(kept)}))
    return tuple(found)


GREEDY = 0.0
"""The temperature of every evaluation: the most probable token each time."""


class EvalRules(BaseModel):
    """All that defines an evaluation but the model: which mazes are played, and which answers count.

    Without defaults: an evaluation that does not say how it was played can be compared with none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    eval_set_sha256: str
    maze: MazeSettings
    """The environment, and how large the picture of a cell is."""
    max_turns: int
    parsing: ParsingMode
    max_reply_tokens: int
    temperature: float


class Conditions(BaseModel):
    """What may turn a greedy answer by rounding, though the rules are the same."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_concurrent: int
    """Mazes played at a time."""
    engine: dict[str, Any]
    """Its settings, by name."""
    software: str = ""
    """The engine's version, or the digest of the image or lock that it comes from; empty where nobody says."""


class EvalReport(BaseModel):
    """All mazes of one evaluation at one training step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    rules: EvalRules
    model_id: str
    """The model or adapter that gave the replies, as the engine named it."""
    outcomes: tuple[Outcome, ...] = Field(min_length=1)
    """At least one: of no maze there is no solve rate."""
    conditions: Conditions | None = None
    """None where nobody noted them."""

    @property
    def num_mazes(self) -> int:
        return len(self.outcomes)

    @property
    def num_solved(self) -> int:
        return sum(outcome.solved for outcome in self.outcomes)

    @property
    def solve_rate(self) -> float:
        """Share of mazes solved, in [0, 1]."""
        return self.num_solved / self.num_mazes

    @property
    def unparsable_replies(self) -> int:
        return sum(outcome.unparsable_replies for outcome in self.outcomes)

    @property
    def mean_turns(self) -> float:
        return sum(outcome.num_turns for outcome in self.outcomes) / self.num_mazes

    def with_fewer_words(self, max_words: int = MAX_WORDS) -> EvalReport:
        """The same, without the replies that exceed so many characters together; the first turns keep theirs."""
        return self.model_copy(update={"outcomes": fewer_words(self.outcomes, max_words)})

    def metrics(self) -> dict[str, float]:
        """The figures that are plotted over training steps."""
        return {
            "eval/solved": self.num_solved,
            "eval/solve_rate": self.solve_rate,
            "eval/unparsable_replies": self.unparsable_replies,
            "eval/mean_turns": self.mean_turns,
        }


class CannotCompare(ValueError):
    """Evaluations were played by different rules."""


def require_same_rules(reports: Iterable[EvalReport]) -> None:
    """Raises CannotCompare with all that differs from the first report's rules."""
    first, *others = reports
    for other in others:
        differ = differences(first.rules.model_dump(mode="json"), other.rules.model_dump(mode="json"))
        if differ:
            raise CannotCompare(
                f"{first.model_id} at step {first.step} and {other.model_id} at step {other.step} were evaluated by "
                f"different rules: {_in_words(differ)}. Evaluate both by the same rules"
            )


def other_conditions(one: EvalReport, other: EvalReport) -> str:
    """What was not alike when both were played, in words; empty where all was, or where nobody knows."""
    if one.conditions is None or other.conditions is None:
        return ""
    return _in_words(differences(one.conditions.model_dump(mode="json"), other.conditions.model_dump(mode="json")))


def _in_words(differ: Mapping[str, tuple[Any, Any]]) -> str:
    return "; ".join(f"{name} was {one} for the one and {two} for the other" for name, (one, two) in differ.items())


class IncompleteEvaluation(ValueError):
    """Fewer or other mazes were played than the evaluation set lists."""


def make_report(
    step: int,
    rules: EvalRules,
    model_id: str,
    seeds: Sequence[int],
    played: Sequence[Outcome],
    conditions: Conditions | None = None,
) -> EvalReport:
    """Order outcomes as the evaluation set does; raises IncompleteEvaluation when a maze is missing or doubled."""
    by_seed = {outcome.seed: outcome for outcome in played}
    if len(by_seed) != len(played) or set(by_seed) != set(seeds):
        missing = sorted(set(seeds) - set(by_seed))
        raise IncompleteEvaluation(
            f"step {step}: {len(played)} outcomes for {len(seeds)} mazes, missing seeds {missing[:8]}; "
            "every maze must be played exactly once"
        )
    ordered = tuple(by_seed[seed] for seed in seeds)
    return EvalReport(step=step, rules=rules, model_id=model_id, outcomes=ordered, conditions=conditions)
