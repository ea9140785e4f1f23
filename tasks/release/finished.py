"""Stages: a training that is finished and published is known where it is recorded, MLflow and S3; no cluster is asked.

Between its last step and its proof a run may fail a dozen ways that have nothing to do with training. The next
attempt then starts behind it, and makes no cluster to hear that there is nothing to train.
"""

from __future__ import annotations

from pydantic import ValidationError

from rl.grpo.settings import TrainJob
from rl.proof.settings import Questions
from serving.publish import AdapterStore
from serving.settings import ServerSettings
from serving.store import s3_client
from tasks.errors import OtherVersion
from tasks.jobs.news import training_log
from tasks.records import FinishedTraining
from tasks.run import RunContext
from tasks.stage import stage
from tasks.training.train import takes_up

FINISHED = "finished_training.json"


@stage
def recall_training(
    context: RunContext, order: TrainJob, server: ServerSettings, questions: Questions
) -> FinishedTraining | None:
    """What an earlier attempt of this run trained, published and probed; None where any of it is still to be done.

    Raises OtherVersion where it was kept in words that this version does not know, and OtherSettings.
    """
    kept = context.run.read(FINISHED)
    if kept is None:
        return None
    try:
        found = FinishedTraining.model_validate_json(kept)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:3])
        raise OtherVersion(
            f"run {context.run_name} keeps a finished training ({FINISHED} in its MLflow run) that this version does "
            f"not read ({wrong}); finish it with the version that began it, or give this run another run_name"
        ) from error
    if not takes_up(found.order.model_dump_json(), order.model_dump_json()) or found.trained.questions != questions:
        return None
    store = AdapterStore(s3_client(), server.adapters_uri, found.adapter.name)
    manifest = store.manifest()
    if store.uri != found.adapter.uri or manifest is None or manifest.adapter_sha256 != found.adapter.sha256:
        return None
    # The attempt that it was ends with this run, however an earlier one ended.
    training_log(context.run, found.best.run.attempt).begin()
    context.page.say(
        f"step {found.adapter.step} of this run is trained, published ({found.adapter.sha256[:12]}) and probed: no "
        "cluster is needed for that"
    )
    return found


@stage
def keep_training(context: RunContext, finished: FinishedTraining) -> FinishedTraining:
    """Keep it for later attempts, before the cluster that made it is gone."""
    context.run.text(finished.model_dump_json(indent=1), FINISHED)
    return finished
