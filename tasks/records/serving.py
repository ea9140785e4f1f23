"""An adapter in the object store and at the endpoint, and the evidence that it is the one that was trained."""

from __future__ import annotations

from rl.events import Probed
from rl.grpo.settings import TrainJob
from rl.maze.score import EvalReport
from rl.proof.settings import Questions
from tasks.records.base import Record
from tasks.records.training import BestStep


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
