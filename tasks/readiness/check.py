"""Stage: does everything answer that the run will need, hours from now too? All checks run, then there is one verdict.

Each has a name, a time limit and a remedy. The orchestrator asks what it can reach; a job on the training cluster
(rl/readiness/job.py) asks every node. A store that takes no objects or a serving cluster that is down would otherwise
come up when the training is done, two nodes that cannot talk to each other as a first step that never ends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import boto3
from prefect import get_run_logger, task
from prefect.artifacts import create_table_artifact

from rl.settings import TrainSettings
from serving.publish import try_store
from serving.store_check import StoreCheck
from tasks.checks import Probe, Unready, require_ready, run_probes
from tasks.clients.mlflow_runs import MlflowRuns
from tasks.cluster.hosting import HostingSettings, hosting_of
from tasks.evidence.sinks import PrefectSinks
from tasks.jobs.ray_jobs import RayJobs
from tasks.jobs.submit import is_of
from tasks.readiness.nodes import check_nodes, ready_job
from tasks.readiness.settings import ReadinessSettings
from tasks.records import ClusterRef, TrackedRun
from tasks.release.settings import ServeSettings
from tasks.settings import JobSettings, TrackingSettings


@task
def check_readiness(
    settings: ReadinessSettings,
    hosting: HostingSettings,
    train: TrainSettings,
    job: JobSettings,
    serve: ServeSettings,
    tracking: TrackingSettings,
    run_name: str,
    cluster: ClusterRef,
    tracked: TrackedRun,
) -> None:
    """Run every check, show the table, keep it in MLflow; raises ClusterNotReady with all that does not hold."""
    mlflow = MlflowRuns(tracking.tracking_uri, tracking.experiment)
    theirs = hosting_of(hosting, settings.timeout_s).probes(serve)
    found = run_probes([*probes(serve, run_name, cluster), *theirs], settings.timeout_s)
    found += check_nodes(
        lambda: RayJobs(cluster.jobs_address),
        job,
        ready_job(settings.nodes, train, tracking.tracking_uri, run_name),
        StoreCheck(adapters_uri=serve.server.adapters_uri, name=f"{run_name}-job", timeout_s=settings.timeout_s),
        PrefectSinks(get_run_logger(), mlflow, tracked.child_run_id, run_name),
    )
    rows = [check.model_dump() for check in found]
    create_table_artifact(table=rows, key=f"{run_name}-readiness", description="Is everything there?")
    mlflow.log_text(tracked.parent_run_id, json.dumps(rows, indent=1), "readiness.json")
    for check in found:
        get_run_logger().info("%s: %s, %s", "ok" if check.holds else "NOT READY", check.name, check.found)
    require_ready(found)


def probes(serve: ServeSettings, run_name: str, cluster: ClusterRef) -> list[Probe]:
    """What this run relies on whoever keeps its clusters, as far as the orchestrator can see it."""
    return [
        Probe(
            "no other job holds the training cluster",
            lambda: others(RayJobs(cluster.jobs_address).unfinished(), run_name),
            "wait for them, or stop them (ray job stop)",
        ),
        Probe(
            "the object store takes, returns and deletes an object",
            lambda: try_store(boto3.client("s3"), serve.server.adapters_uri, run_name),
            "check bucket, endpoint and credentials of the AWS chain (locally: make up)",
        ),
    ]


def others(unfinished: Sequence[str], run_name: str) -> str:
    """Raises Unready when jobs of other runs wait or run; this run's own are taken up."""
    foreign = [name for name in unfinished if not is_of(name, run_name)]
    if foreign:
        raise Unready(f"unfinished jobs: {', '.join(foreign)}")
    return "none"
