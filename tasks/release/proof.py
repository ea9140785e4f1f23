"""Stage: the served adapter is the trained one. Nothing is promoted without this certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl.events import Probed
from rl.proof.questions import probe_conversations
from rl.proof.settings import ProbeJob, Questions
from serving.publish import AdapterStore
from serving.store import s3_client
from tasks.errors import NotProven
from tasks.jobs.run_job import run_job
from tasks.records import BestStep, Certificate, ClusterRef, ServingSide, TrainingSide
from tasks.release.gate import compare
from tasks.release.openai_chat import ChatEndpoint, Reply
from tasks.release.settings import ProofSettings
from tasks.run import RunContext
from tasks.stage import stage


@stage
def probe_training_side(context: RunContext, questions: Questions, best: BestStep, cluster: ClusterRef) -> TrainingSide:
    """The probes' answers by transformers and peft, as a job on the cluster that trained."""
    order = ProbeJob(
        base_dir=best.run.model_path, adapter_dir=best.export.path, dtype=best.run.dtype, questions=questions
    )
    probes = run_job(context, cluster, f"probe-{best.export.step}", "rl.proof.job", order).probes
    answers = tuple(probes[number] for number in sorted(probes))
    return TrainingSide(evaluation=best.best, questions=questions, answers=answers)


@stage
def prove_adapter(
    context: RunContext, settings: ProofSettings, trained: TrainingSide, serving: ServingSide
) -> Certificate:
    """Ask the endpoint what the training side was asked, weigh everything, keep the certificate in MLflow and S3."""
    adapter, endpoint = serving.adapter, serving.endpoint
    chat = ChatEndpoint(endpoint.url)
    served, base = (ask_probes(chat, model, trained.questions) for model in (adapter.model_id, endpoint.base_model_id))
    listed = chat.lists(adapter.model_id)
    found = weigh(settings, trained, serving, Heard(served, base, listed))
    document = found.model_dump_json(indent=1)
    context.run.text(document, f"certificates/{adapter.name}.json")
    AdapterStore(s3_client(), adapter.uri.rpartition("/")[0], adapter.name).put_certificate(document)
    for failure in found.failures:
        context.page.warn(f"proof: {failure}")
    if found.holds:
        context.page.say(f"proof: {adapter.model_id} is the trained adapter ({adapter.sha256[:12]})")
    return found


def ask_probes(chat: ChatEndpoint, model: str, questions: Questions) -> list[Reply]:
    """The endpoint's greedy answers to the probes, with their log-probabilities."""
    return [
        chat.chat(model, messages, questions.max_reply_tokens, logprobs=True)
        for messages in probe_conversations(questions)
    ]


@dataclass(frozen=True)
class Heard:
    """What the endpoint said, asked for the adapter and for its base."""

    served: Sequence[Reply]
    base: Sequence[Reply]
    listed: bool
    """Whether its model list has the adapter."""


def require_proof(certificate: Certificate) -> None:
    """Raises NotProven with everything that does not hold."""
    if not certificate.holds:
        raise NotProven(
            f"{certificate.adapter.model_id} is published and not promoted: {'; '.join(certificate.failures)}"
        )


def weigh(settings: ProofSettings, trained: TrainingSide, serving: ServingSide, heard: Heard) -> Certificate:
    """Pure: every condition of the proof, and what fails."""
    pairs = zip(trained.answers, heard.served, strict=True)
    differences = [_logprob_difference(t, s.text, s.token_logprobs) for t, s in pairs]
    agreement = compare(serving.evaluation, trained.evaluation)
    found = Certificate(
        adapter=serving.adapter,
        listed=heard.listed,
        num_probes=len(trained.answers),
        num_different_from_base=sum(_differs(s, b, settings) for s, b in zip(heard.served, heard.base, strict=True)),
        num_equal_replies=sum(difference is not None for difference in differences),
        max_logprob_difference=max((d for d in differences if d is not None), default=None),
        training_solved=trained.evaluation.num_solved,
        endpoint_solved=serving.evaluation.num_solved,
        agreement_p_value=agreement.p_value,
        failures=(),
    )
    answered_by = {reply.model for reply in heard.served}
    return found.model_copy(update={"failures": tuple(_failures(settings, found, answered_by))})


def _failures(settings: ProofSettings, found: Certificate, answered_by: set[str]) -> list[str]:
    name, difference = found.adapter.model_id, found.max_logprob_difference or 0.0
    checks: Mapping[str, bool] = {
        f"{name} is not listed by the endpoint": found.listed,
        f"{', '.join(sorted(answered_by))} answered in place of {name}": answered_by == {name},
        f"no probe is answered unlike the base: the base answers under the name {name}": found.num_different_from_base
        > 0,
        f"{found.num_probes - found.num_equal_replies} of {found.num_probes} probes get another reply than the trained "
        "adapter gives: other weights are served": found.num_equal_replies == found.num_probes,
        f"log-probabilities differ by {difference:.4g} from the trained adapter's, at most "
        f"{settings.max_logprob_difference:g} was wanted: other weights are served": (
            difference <= settings.max_logprob_difference
        ),
        f"{found.endpoint_solved} mazes solved through the endpoint, {found.training_solved} in training "
        f"(p={found.agreement_p_value:.3g}): more than sampling explains": (
            found.agreement_p_value >= settings.min_agreement_p_value
        ),
    }
    return [text for text, holds in checks.items() if not holds]


def _logprob_difference(trained: Probed, text: str, logprobs: Sequence[float]) -> float | None:
    """Largest difference over the tokens that both sides list; None when the replies differ."""
    if trained.text != text or not logprobs:
        return None
    # An endpoint may leave out the end of turn, which the training side lists.
    return max(abs(a - b) for a, b in zip(trained.logprobs, logprobs, strict=False))


def _differs(served: Reply, base: Reply, settings: ProofSettings) -> bool:
    pairs = zip(served.token_logprobs, base.token_logprobs, strict=False)
    return served.text != base.text or any(abs(a - b) > settings.max_logprob_difference for a, b in pairs)
