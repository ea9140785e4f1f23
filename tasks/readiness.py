"""Stage: does everything answer that the run will need, hours from now too? All checks run, then there is one verdict.

Each has a name, a time limit and a remedy. A store that takes no objects or a serving cluster that is down would
otherwise come up when the training is done.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import boto3
from prefect import get_run_logger, task
from prefect.artifacts import create_table_artifact

from serving.publish import try_store
from tasks.adapters.mlflow_runs import MlflowRuns
from tasks.adapters.ray_jobs import RayJobs
from tasks.adapters.serve_rest import ServeRest
from tasks.probes import Probe, Unready, require_ready, run_probes
from tasks.records import ClusterRef, TrackedRun
from tasks.settings import ReadinessSettings, ServeSettings, TrackingSettings


@task
def check_readiness(
    settings: ReadinessSettings,
    serve: ServeSettings,
    tracking: TrackingSettings,
    run_name: str,
    cluster: ClusterRef,
    tracked: TrackedRun,
) -> None:
    """Run every check, show the table, keep it in MLflow; raises ClusterNotReady with all that does not hold."""
    found = run_probes(probes(serve, run_name, cluster), settings.timeout_s)
    rows = [check.model_dump() for check in found]
    create_table_artifact(table=rows, key=f"{run_name}-readiness", description="Is everything there?")
    MlflowRuns(tracking.tracking_uri, tracking.experiment).log_text(
        tracked.parent_run_id, json.dumps(rows, indent=1), "readiness.json"
    )
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
