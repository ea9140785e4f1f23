"""The retrain flow: one page, read from top to bottom.

    prepare data, draw judge set -> build images -> make room -> create training cluster -> ensure cluster
        MazesRef      JudgeSet       ImageRefs                                              ClusterRef
    -> check readiness -> train (Ray job: GRPO, evaluations, exports) -> pick best -> publish to S3
                                                                                      PublishedAdapter
    -> probe the training side -> release its cluster -> create serving cluster -> ensure endpoint
       TrainingSide                                                                ServedEndpoint
    -> evaluate through it -> prove -> play judge set -> judge -> promote -> report -> clean up, whatever happened
       EvalReport         Certificate   Evaluations  Verdict ChampionChange           Leftovers

Each stage is handed the run's context, its own settings and the records of stages before it. Needs a Prefect API,
MLflow (platform.tracking), S3 (the usual AWS chain), and Ray clusters that others keep or an EKS cluster to make them
on (platform.hosting). Nothing is cached: a second run of the same name takes up the images, the Ray jobs, the MLflow
run, the checkpoints and the adapter of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed

from flows.knobs import Knobs
from flows.names import default_name
from flows.settings.retrain import RetrainPlatform, RetrainSettings
from rl.grpo.settings import TrainJob
from tasks.cleanup.clean_up import cleaned_up_after
from tasks.cluster.create import (
    create_serving_cluster,
    create_training_cluster,
    make_room_for_training,
    release_training_cluster,
)
from tasks.cluster.wait import ensure_cluster
from tasks.evidence.report import in_one_line, write_report
from tasks.evidence.tracking import About, tracked_run
from tasks.image.build import build_images
from tasks.readiness.check import check_readiness
from tasks.records import FinishedTraining, ImageRef, MazesRef, ServedRun, ServingSide
from tasks.release.champion import contest_of, judge_adapter, promote_adapter
from tasks.release.endpoint import ensure_endpoint
from tasks.release.evaluate import evaluate_endpoint
from tasks.release.finished import keep_training, recall_training
from tasks.release.judge_set import draw_judge_set, play_judge_set
from tasks.release.proof import probe_training_side, prove_adapter, require_proof
from tasks.release.publish import publish_adapter
from tasks.run import RunContext
from tasks.training.best import pick_best
from tasks.training.data import prepare_data
from tasks.training.train import order_training, run_training


@flow(name="retrain", retries=0, flow_run_name=lambda: run_name_of(**flow_run.parameters))
def retrain(knobs: Knobs, platform: RetrainPlatform) -> State[dict[str, Any]]:
    """Retrain the maze agent, serve the best step, promote it if it is proven and better, and report.

    Raises NotProven, after the report is written, when the endpoint serves something else than was trained.
    """
    name = run_name_of(knobs, platform)
    settings = RetrainSettings.of(platform, knobs).of_run(name)
    about = About("flows/retrain.py:retrain", settings.description)
    params, links = settings.params(name), settings.links
    with tracked_run(settings.tracking, name, params, about=about, links=links) as context:
        mazes = prepare_data(context, settings.train.data)
        judge_set = draw_judge_set(context, settings.judge_mazes)
        order = order_training(context, settings.train, mazes)
        finished = recall_training(context, order, settings.serve.server, settings.questions)
        with cleaned_up_after(context, settings.scope):
            images = build_images(context, settings.image)
            finished = finished or train_and_publish(context, settings, Work(order, mazes, images))
            best, adapter, trained = finished.best, finished.adapter, finished.trained
            release_training_cluster(context, settings.hosting)
            away_s = create_serving_cluster(context, settings.hosting, settings.serve.server, images)
            endpoint = ensure_endpoint(context, settings.serve)

            evaluation = evaluate_endpoint(context, settings.evaluation(images), endpoint.serves(adapter))
            served = ServingSide(adapter=adapter, endpoint=endpoint, evaluation=evaluation)
            certificate = prove_adapter(context, settings.proof, trained, served)
            contest = contest_of(settings.champions, endpoint, adapter)
            played = play_judge_set(context, settings.evaluation(images), judge_set, contest)
            verdict = judge_adapter(context, settings.gate, played)
            change = promote_adapter(context, settings.champions, certificate, verdict)

            outcome = ServedRun(
                adapter=adapter,
                endpoint=endpoint,
                certificate=certificate,
                verdict=verdict,
                change=change,
                played=played,
                evaluation=evaluation,
                away_s=away_s,
            )
            report = write_report(context, settings.report, best, outcome)
            require_proof(certificate)
            return Completed(message=in_one_line(report), data=report)


@dataclass(frozen=True)
class Work:
    """What is to be trained, and in what."""

    order: TrainJob
    mazes: MazesRef
    images: Mapping[str, ImageRef]


def train_and_publish(context: RunContext, settings: RetrainSettings, work: Work) -> FinishedTraining:
    """From a cluster for training to the best step in the object store; all of it that needs that cluster."""
    make_room_for_training(context, settings.hosting, settings.serve.server, work.images)
    create_training_cluster(context, settings.hosting, work.images)
    cluster = ensure_cluster(context, settings.cluster, settings.job)
    check_readiness(context, settings.readiness, settings.needs, cluster)
    run = run_training(context, work.order, work.mazes, cluster)
    best = pick_best(context, run)
    adapter = publish_adapter(context, settings.serve.server, best, cluster)
    trained = probe_training_side(context, settings.questions, best, cluster)
    return keep_training(context, FinishedTraining(order=work.order, best=best, adapter=adapter, trained=trained))


def run_name_of(knobs: Knobs, platform: RetrainPlatform) -> str:
    """The run's name: as set, or one of the flow run's own, which it keeps when it is retried."""
    return knobs.run_name or default_name(platform["report"]["profile"])
