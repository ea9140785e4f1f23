"""What stages hand to each other: digests, steps, URIs and counts. Never a tag, never a live object."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from rl.events import Probed, Rollouts
from rl.grpo.settings import TrainJob
from rl.maze.eval_set import EvalSet
from rl.maze.score import EvalReport
from rl.proof.settings import Questions
from tasks.settings import JobSettings


class Record(BaseModel):
    """Frozen and strict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def in_words(self) -> str:
        """What a stage found, in a few words; empty where its name says it all."""
        return ""


class Check(Record):
    """One thing that the run relies on."""

    name: str
    holds: bool
    found: str
    remedy: str = ""
    """What to do where it does not hold."""


class MazesRef(Record):
    """The mazes of one run."""

    height: int
    width: int
    """In cells, as ``height`` is."""
    eval_sha256: str
    num_eval_mazes: int
    ceiling: int
    """Evaluation mazes that can be solved at all within the turn limit."""
    train_sha256: str
    num_train_mazes: int
    train_ceiling: int

    def in_words(self) -> str:
        return (
            f"{self.num_train_mazes} mazes to train on, {self.num_eval_mazes} to evaluate on "
            f"({self.ceiling} of them can be solved)"
        )


class ClusterRef(Record):
    """A cluster that was ready."""

    jobs_address: str
    ray_version: str
    num_gpus: float
    job: JobSettings
    """How jobs run there."""
    own_job: str = ""
    """This run's training job, where it goes on there already and holds the GPUs."""

    def in_words(self) -> str:
        return f"Ray {self.ray_version}, {self.num_gpus:g} GPUs" + (f", {self.own_job} goes on" if self.own_job else "")


class ImageRef(Record):
    """What processes of a run run in."""

    uri: str
    """``<host>/<repository>@sha256:<64 hex digits>``; path of the lock where the environment is installed."""
    sha256: str
    """Of the image's manifest, or of the lock."""
    content: str = ""
    """Tag made of all that went into the image; empty for a lock."""
    built: bool = False
    """Whether this run had to build it."""


class ExportRef(Record):
    """A LoRA export on the cluster's shared file system."""

    step: int
    path: str
    sha256: dict[str, str]


class TrainedRun(Record):
    """What a finished training job said about itself."""

    run_name: str
    submission_id: str
    attempt: int
    """Number of the attempt at training that told all this, from 1."""
    mazes: MazesRef
    model_path: str
    """Folder of the base model, as the cluster's nodes see it."""
    dtype: str
    """In which it was trained: float32 or bfloat16."""
    resumed_from_step: int
    last_step: int
    evaluations: tuple[EvalReport, ...]
    """Ascending by step; one per step."""
    exports: tuple[ExportRef, ...]
    checkpoint_steps: tuple[int, ...]
    numbers: dict[int, dict[str, float]] = {}
    """Step -> its reward and what its time went into, as SkyRL names them; what the pictures show."""
    rollouts: tuple[Rollouts, ...] = ()
    """Some episodes of training, ascending by step."""

    def in_words(self) -> str:
        last = self.evaluations[-1] if self.evaluations else None
        solves = f", the last evaluation solved {last.num_solved} of {last.num_mazes}" if last else ""
        return f"{self.last_step} steps{solves}"


class BestStep(Record):
    """The step to serve: the best among those with an evaluation and an export."""

    run: TrainedRun
    base: EvalReport
    best: EvalReport
    export: ExportRef

    def in_words(self) -> str:
        solved = f"{self.best.num_solved} of {self.best.num_mazes}"
        return f"step {self.best.step} solved {solved}, the base {self.base.num_solved}"


class PublishedAdapter(Record):
    """An adapter in the object store, under a name that never changes its meaning."""

    name: str
    uri: str
    sha256: str
    """Over the digests of its files."""
    step: int
    model_id: str
    """What clients of the endpoint call it."""

    def in_words(self) -> str:
        return f"{self.name}, {self.sha256[:12]}"


class ServedModel(Record):
    """A model as clients of an endpoint ask for it."""

    url: str
    """Address of the endpoint, before ``/v1``."""
    model_id: str
    step: int = 0
    """Training step of its weights; 0 for a base model, or where nobody says."""
    sha256: str = ""
    """Digest of its weights; empty where nobody says, and then what it has played is never recalled."""


class ServedEndpoint(Record):
    """A Serve application that runs."""

    url: str
    base_model_id: str
    deployed: bool
    """Whether this run had to deploy it."""

    @property
    def base(self) -> ServedModel:
        """The model without any adapter."""
        return ServedModel(url=self.url, model_id=self.base_model_id)

    def serves(self, adapter: PublishedAdapter) -> ServedModel:
        """What clients ask for to get this adapter."""
        return ServedModel(url=self.url, model_id=adapter.model_id, step=adapter.step)

    def in_words(self) -> str:
        return f"{self.url} {'was deployed' if self.deployed else 'was running already'}"


class TrainingSide(Record):
    """What training knows of an adapter: its evaluation, and its answers to the proof's questions."""

    evaluation: EvalReport
    questions: Questions
    answers: tuple[Probed, ...]
    """One a question, by transformers and peft."""

    def in_words(self) -> str:
        return f"{len(self.answers)} questions answered"


class FinishedTraining(Record):
    """A training whose best step is in the object store and has answered the proof's questions."""

    order: TrainJob
    """What was asked of it."""
    best: BestStep
    adapter: PublishedAdapter
    trained: TrainingSide

    def in_words(self) -> str:
        return f"step {self.adapter.step} is published and probed"


class ServingSide(Record):
    """The same adapter as clients meet it."""

    adapter: PublishedAdapter
    endpoint: ServedEndpoint
    evaluation: EvalReport


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


class Certificate(Record):
    """Evidence that the endpoint serves the adapter that was trained, under its name."""

    adapter: PublishedAdapter
    listed: bool
    """The endpoint's model list has it."""
    num_probes: int
    num_different_from_base: int
    """Probes that it answers unlike the base model: other text, or other log-probabilities."""
    num_equal_replies: int
    """Probes that endpoint and training side answer with the same text."""
    max_logprob_difference: float | None
    """Largest over the tokens of equal replies, endpoint against training side; None when no reply is equal."""
    training_solved: int
    endpoint_solved: int
    agreement_p_value: float
    """Exact McNemar test between both evaluations of the same mazes."""
    failures: tuple[str, ...]
    """What does not hold; empty when the proof stands."""

    @property
    def holds(self) -> bool:
        return not self.failures

    def in_words(self) -> str:
        if not self.holds:
            return f"it does not hold: {self.failures[0]}"
        return f"{self.num_equal_replies} of {self.num_probes} replies are the trained adapter's"


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


def in_words(found: object) -> str:
    """What a stage found, in a few words; empty where there is nothing to say."""
    match found:
        case Record():
            return found.in_words()
        case EvalReport():
            return f"{found.num_solved} of {found.num_mazes} mazes solved"
        case dict() if found and all(isinstance(value, ImageRef) for value in found.values()):
            return ", ".join(f"{name} {value.sha256[:12]}" for name, value in found.items())
        case _:
            return ""
