"""Stage: does everything answer that the run will need, hours from now too? All checks run, then there is one verdict.

Each has a name, a time limit and a remedy. The orchestrator asks what it can reach; a job on the training cluster
(rl/ready.py) asks every node. A store that takes no objects or a serving cluster that is down would otherwise come up
when the training is done, two nodes that cannot talk to each other as a first step that never ends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import boto3
from prefect import get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from rl.settings import TrainSettings
from serving.publish import try_store
from serving.store_check import StoreCheck
from tasks.adapters.mlflow_runs import MlflowRuns
from tasks.adapters.ray_jobs import RayJobs
from tasks.adapters.serve_rest import ServeRest
from tasks.nodes_ready import check_nodes, ready_job
from tasks.probes import Probe, Unready, require_ready, run_probes
from tasks.records import ClusterRef, TrackedRun
from tasks.settings import JobSettings, ReadinessSettings, ServeSettings, TrackingSettings
from tasks.sinks import PrefectSinks


# Probes hold live clients, of which no cache key can be made.
@task(cache_policy=NO_CACHE)
def check_readiness(
    settings: ReadinessSettings,
    train: TrainSettings,
    job: JobSettings,
    serve: ServeSettings,
    tracking: TrackingSettings,
    run_name: str,
    cluster: ClusterRef,
    tracked: TrackedRun,
    extra: Sequence[Probe] = (),
) -> None:
    """Run every check, show the table, keep it in MLflow; raises ClusterNotReady with all that does not hold.

    ``extra`` are probes of whoever brought the clusters up.
    """
    mlflow = MlflowRuns(tracking.tracking_uri, tracking.experiment)
    found = run_probes([*probes(serve, run_name, cluster), *extra], settings.timeout_s)
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
    """What this run relies on, as far as the orchestrator can see it."""
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
        Probe(
            "the serving cluster takes applications",
            lambda: str(ServeRest(serve.dashboard).applications() or "none is deployed yet"),
            "start the serving cluster (locally: make up) or correct serve.dashboard",
        ),
    ]


def others(unfinished: Sequence[str], run_name: str) -> str:
    """Raises Unready when jobs of other runs wait or run; this run's own are taken up."""
    foreign = [name for name in unfinished if not name.startswith(f"{run_name}-")]
    if foreign:
        raise Unready(f"unfinished jobs: {', '.join(foreign)}")
    return "none"
