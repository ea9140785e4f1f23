"""Stage: the served adapter is the trained one. Nothing is promoted without this certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import boto3
from prefect import get_run_logger, task

from rl.events import Probed
from rl.maze.score import EvalReport
from rl.proof.questions import ProbeJob, probe_conversations
from rl.settings import MazeSettings, TrainSettings
from serving.publish import AdapterStore
from tasks.clients.mlflow_runs import MlflowRuns
from tasks.errors import NotProven
from tasks.evidence.sinks import PrefectSinks
from tasks.jobs.ray_jobs import RayJobs
from tasks.jobs.submit import entrypoint, followed_to_its_end, submit_once
from tasks.records import BestStep, Certificate, ClusterRef, PublishedAdapter, ServedEndpoint, TrackedRun
from tasks.release.gate import compare
from tasks.release.openai_chat import ChatEndpoint, Reply
from tasks.release.settings import PlaySettings, ProofSettings
from tasks.settings import JobSettings, TrackingSettings


@task
def probe_training_side(
    settings: ProofSettings,
    play: PlaySettings,
    job: JobSettings,
    train: TrainSettings,
    tracking: TrackingSettings,
    run_name: str,
    best: BestStep,
    cluster: ClusterRef,
    tracked: TrackedRun,
) -> tuple[Probed, ...]:
    """The probes' answers by transformers and peft, as a job on the cluster that trained."""
    order = ProbeJob(
        base_dir=train.model_path,
        adapter_dir=best.export.path,
        maze=train.data.maze,
        num_probes=settings.num_probes,
        max_reply_tokens=play.max_reply_tokens,
        dtype=train.engine.dtype,
    )
    jobs = RayJobs(cluster.jobs_address)
    name = f"{run_name}-probe-{best.export.step}"
    submission_id = submit_once(jobs, name, entrypoint(job, "rl.proof.job", order.model_dump_json()))
    mlflow = MlflowRuns(tracking.tracking_uri, tracking.experiment)
    sinks = PrefectSinks(get_run_logger(), mlflow, tracked.child_run_id, run_name)
    probes = followed_to_its_end(jobs, submission_id, sinks, job).probes
    return tuple(probes[number] for number in sorted(probes))


@task
def prove_adapter(
    settings: ProofSettings,
    play: PlaySettings,
    maze: MazeSettings,
    tracking: TrackingSettings,
    adapter: PublishedAdapter,
    endpoint: ServedEndpoint,
    trained: Sequence[Probed],
    training_eval: EvalReport,
    endpoint_eval: EvalReport,
    tracked: TrackedRun,
) -> Certificate:
    """Ask the endpoint what the training side was asked, weigh everything, keep the certificate in MLflow and S3."""
    chat = ChatEndpoint(endpoint.url)
    served, base = (
        ask_probes(chat, model, maze, settings.num_probes, play.max_reply_tokens)
        for model in (adapter.model_id, endpoint.base_model_id)
    )
    listed = adapter.model_id in chat.model_ids()
    found = weigh(settings, adapter, listed, trained, served, base, training_eval, endpoint_eval)
    document = found.model_dump_json(indent=1)
    MlflowRuns(tracking.tracking_uri, tracking.experiment).log_text(
        tracked.parent_run_id, document, f"certificates/{adapter.name}.json"
    )
    AdapterStore(boto3.client("s3"), adapter.uri.rpartition("/")[0], adapter.name).put_certificate(document)
    logger = get_run_logger()
    for failure in found.failures:
        logger.error("proof: %s", failure)
    if found.holds:
        logger.info("proof: %s is the trained adapter (%s)", adapter.model_id, adapter.sha256[:12])
    return found


def ask_probes(
    chat: ChatEndpoint, model: str, maze: MazeSettings, num_probes: int, max_reply_tokens: int
) -> list[Reply]:
    """The endpoint's greedy answers to the probes, with their log-probabilities."""
    return [
        chat.chat(model, messages, max_reply_tokens, logprobs=True)
        for messages in probe_conversations(maze, num_probes)
    ]


def require_proof(certificate: Certificate) -> None:
    """Raises NotProven with everything that does not hold."""
    if not certificate.holds:
        raise NotProven(
            f"{certificate.adapter.model_id} is published and not promoted: {'; '.join(certificate.failures)}"
        )


def weigh(
    settings: ProofSettings,
    adapter: PublishedAdapter,
    listed: bool,
    trained: Sequence[Probed],
    served: Sequence[Reply],
    base: Sequence[Reply],
    training_eval: EvalReport,
    endpoint_eval: EvalReport,
) -> Certificate:
    """Pure: every condition of the proof, and what fails."""
    differences = [_logprob_difference(t, s.text, s.token_logprobs) for t, s in zip(trained, served, strict=True)]
    agreement = compare(endpoint_eval, training_eval)
    found = Certificate(
        adapter=adapter,
        listed=listed,
        num_probes=len(trained),
        num_different_from_base=sum(_differs(s, b, settings) for s, b in zip(served, base, strict=True)),
        num_equal_replies=sum(difference is not None for difference in differences),
        max_logprob_difference=max((d for d in differences if d is not None), default=None),
        training_solved=training_eval.num_solved,
        endpoint_solved=endpoint_eval.num_solved,
        agreement_p_value=agreement.p_value,
        failures=(),
    )
    answered_by = {reply.model for reply in served}
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
