"""Stage: does everything answer that the run will need, hours from now too? All checks run, then there is one verdict.

Each has a name and a remedy, and all that the orchestrator makes have one time limit. The orchestrator asks what it can
reach; a job on the training cluster (rl/readiness/job.py) asks every node. A store that takes no objects or a serving
cluster that is down would otherwise come up when the training is done, two nodes that cannot talk to each other as a
first step that never ends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from serving.publish import try_store
from serving.store import s3_client
from serving.store_check import StoreCheck
from tasks.checks import ToCheck, Unready, require_ready, start_checks
from tasks.clients.mlflow_check import try_registry, try_tracking
from tasks.cluster.hosting import hosting_of
from tasks.jobs.news import JobNews
from tasks.jobs.ray_jobs import RayJobs
from tasks.jobs.submit import is_of
from tasks.readiness.nodes import check_nodes, ready_job
from tasks.readiness.settings import ReadinessSettings, RunNeeds
from tasks.records import Check, ClusterRef
from tasks.run import RunContext
from tasks.stage import stage


@stage
def check_readiness(context: RunContext, settings: ReadinessSettings, needs: RunNeeds, cluster: ClusterRef) -> None:
    """Run every check, show the table, keep it in MLflow; raises ClusterNotReady with all that does not hold.

    Nodes on which this run's training goes on are asked nothing: what they could not do, it says itself.
    """
    theirs = hosting_of(needs.hosting).checks(needs.serve_dashboard, needs.serve_listen)
    ours = own_checks(needs, context.run_name, cluster)
    # The nodes are asked meanwhile, and have a limit of their own.
    asked = start_checks([*ours, *theirs], settings.timeout_s)
    on_nodes = asked_nodes(context, settings, needs, cluster)
    found = [*asked(), *on_nodes]
    rows = [check.model_dump() for check in found]
    context.page.table("readiness", rows, "Is everything there?")
    context.run.text(json.dumps(rows, indent=1), "readiness.json")
    for check in found:
        context.page.say(f"{'ok' if check.holds else 'NOT READY'}: {check.name}, {check.found}")
    context.stages.found(f"{sum(check.holds for check in found)} of {len(found)} checks hold")
    require_ready(found)


def asked_nodes(
    context: RunContext, settings: ReadinessSettings, needs: RunNeeds, cluster: ClusterRef
) -> Sequence[Check]:
    """What the nodes say of themselves."""
    if cluster.own_job:
        return [Check(name="the nodes", holds=True, found=f"not asked: {cluster.own_job} trains on them")]
    return check_nodes(
        lambda: RayJobs(cluster.jobs_address, marks=context.marks),
        cluster.job,
        ready_job(settings.nodes, needs, context.run_name),
        StoreCheck(adapters_uri=needs.adapters_uri, name=f"{context.run_name}-job", timeout_s=settings.timeout_s),
        JobNews(context),
    )


def own_checks(needs: RunNeeds, run_name: str, cluster: ClusterRef) -> list[ToCheck]:
    """What this run relies on whoever keeps its clusters, as far as the orchestrator can see it."""
    return [job_check(run_name, cluster), *server_checks(needs, run_name)]


def job_check(run_name: str, cluster: ClusterRef) -> ToCheck:
    return ToCheck(
        "no other job holds the training cluster",
        lambda: others(RayJobs(cluster.jobs_address).unfinished(), run_name),
        "wait for them, or stop them (ray job stop)",
    )


def server_checks(needs: RunNeeds, run_name: str) -> list[ToCheck]:
    """Servers that are there whether clusters are or not."""
    return [
        ToCheck(
            "the object store takes, returns, lists and deletes an object",
            lambda: try_store(s3_client(), needs.adapters_uri, run_name),
            "check bucket, endpoint and credentials of the AWS chain (locally: make up)",
        ),
        ToCheck(
            "MLflow takes a run, its numbers and its files, and gives them back",
            lambda: try_tracking(needs.tracking_uri, needs.experiment, run_name),
            "start MLflow (locally: make up), correct tracking.tracking_uri, or give this identity its artifact store",
        ),
        ToCheck(
            "MLflow's registry takes models, versions and aliases",
            lambda: try_registry(needs.tracking_uri, run_name, f"{needs.adapters_uri}/{run_name}"),
            "start MLflow (locally: make up), or give this identity the registry's permissions",
        ),
    ]


def others(unfinished: Sequence[str], run_name: str) -> str:
    """Raises Unready when jobs of other runs wait or run; this run's own are taken up."""
    foreign = [name for name in unfinished if not is_of(name, run_name)]
    if foreign:
        raise Unready(f"unfinished jobs: {', '.join(foreign)}")
    return "none"
