"""Who plays, who is better, and who is champion."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from rl.maze.eval_set import EvalSet
from rl.maze.score import EvalReport
from tasks.records.base import Record
from tasks.records.serving import Certificate, PublishedAdapter, ServedEndpoint, ServedModel


class JudgeSet(Record):
    """The mazes that decide about a run's candidate: neither trained on nor what its best step was chosen by."""

    name: str
    """From the run's; another run has others."""
    sha256: str
    mazes: EvalSet
    """Seed, fingerprint and turns needed of each."""
    ceiling: int
    """How many can be solved at all within the turn limit."""

    def in_words(self) -> str:
        return f"{len(self.mazes.mazes)} mazes to judge by, {self.sha256[:12]} ({self.ceiling} of them can be solved)"


class Contest(Record):
    """Who plays the judge set."""

    candidate: ServedModel
    base: ServedModel
    champion: ServedModel | None


class Evaluations(Record):
    """The judge set, played through the same endpoint by whoever may become champion and whom it has to beat."""

    judge_set: JudgeSet
    candidate: EvalReport
    base: EvalReport
    champion: EvalReport | None
    """None where there is none yet, or where it is the candidate itself."""
    recalled: tuple[str, ...] = ()
    """Models whose evaluation an earlier attempt of the run kept, under conditions that are the same throughout."""

    def in_words(self) -> str:
        others = {"base": self.base, "champion": self.champion}
        told = "".join(f", {name} {report.num_solved}" for name, report in others.items() if report)
        again = f" ({', '.join(self.recalled)} recalled)" if self.recalled else ""
        return f"{self.candidate.num_solved} of {self.candidate.num_mazes} judge mazes solved{told}{again}"


Decision = Literal["promote", "keep", "reject"]


class Comparison(Record):
    """Candidate against reference, maze by maze."""

    reference: str
    """Model id of the reference."""
    wins: int
    """Mazes that only the candidate solved."""
    losses: int
    """Mazes that only the reference solved."""
    both: int
    neither: int
    p_value: float
    """Two-sided exact McNemar test that wins and losses are equally likely; 1 when there are none."""
    difference: float
    """By how much the candidate's solve rate is above the reference's."""
    interval: tuple[float, float]
    """Newcombe's 95% interval of that difference."""
    other_conditions: str = ""
    """What was not alike when both were played; empty where all was, or where nobody knows."""

    @property
    def margin(self) -> int:
        """Mazes by which the candidate is ahead."""
        return self.wins - self.losses


class Verdict(Record):
    """What to do with a candidate, and why."""

    decision: Decision
    reason: str
    candidate_solved: int
    num_mazes: int
    interval: tuple[float, float]
    """95% Wilson interval of the candidate's solve rate."""
    against_base: Comparison
    against_champion: Comparison | None
    visible_gain: float | None
    """Gain over the base that this many mazes show 9 times in 10, with as many lost as here; None where no gain is."""

    def in_words(self) -> str:
        return f"{self.decision}: {self.reason}"


class ChampionChange(Record):
    """Who is champion now, and who was before."""

    champion: str
    previous: str | None

    def in_words(self) -> str:
        return f"{self.champion} is champion" + (f", {self.previous} was it before" if self.previous else "")


class Standing(Record):
    """The champion, and where it comes from."""

    champion: str
    sha256: str
    """Over the digests of its files."""
    since: datetime | None
    run_name: str
    step: int
    num_solved: int
    num_mazes: int
    """Of its evaluation in training."""
    previous: str | None

    def in_words(self) -> str:
        since = f" since {self.since:%Y-%m-%d %H:%M} UTC" if self.since else ""
        before = f"; before it: {self.previous}" if self.previous else ""
        return (
            f"champion {self.champion}{since}: step {self.step} of run {self.run_name}, solved {self.num_solved} of "
            f"{self.num_mazes} mazes, {self.sha256[:12]}{before}"
        )


class ServedRun(Record):
    """What became of the best step after training."""

    adapter: PublishedAdapter
    endpoint: ServedEndpoint
    certificate: Certificate
    verdict: Verdict
    change: ChampionChange | None
    """None when the champion stays."""
    played: Evaluations
    """What the verdict rests on."""
    evaluation: EvalReport
    """The evaluation mazes of training, played by the adapter through the endpoint."""
    away_s: float = 0.0
    """For how many seconds the endpoint was suspended for the training."""
