"""Readiness without a run: every check of it that can be asked now, for whoever wants to know before a run is started.

Clusters that a run makes are not there between two runs: what making them needs is asked then, and the rest is left to
the run. Nothing that does not answer raises: it is a check that does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator

from tasks.checks import ToCheck, Unready, run_checks, start_checks
from tasks.cluster.hosting import Hosting, hosting_of
from tasks.jobs.ray_jobs import cluster_resources
from tasks.readiness.check import asked_nodes, job_check, server_checks
from tasks.readiness.settings import ReadinessSettings, RunNeeds
from tasks.records import Check, ClusterRef
from tasks.run import RunContext

NODES = "the nodes"


def look_around(
    context: RunContext, settings: ReadinessSettings, needs: RunNeeds, cluster: ClusterRef
) -> Iterator[Check]:
    """What a run would be told now, check by check, each as soon as it is known."""
    yield from start_checks(server_checks(needs, context.run_name), settings.timeout_s)()
    way, hosting, is_there = _keeper(settings, needs)
    yield way
    if hosting is None:
        yield _not_asked(False, "not asked: whoever keeps the clusters gives no answer")
        return
    if not is_there:
        before = hosting.checks_before(needs.serve_dashboard, needs.serve_listen)
        yield from start_checks(before, settings.timeout_s)()
        yield _not_asked(True, "not asked: the run makes them")
        return
    yield from start_checks(hosting.checks(needs.serve_dashboard, needs.serve_listen), settings.timeout_s)()
    jobs = run_checks([_gpus_check(needs, cluster), job_check(context.run_name, cluster)], settings.timeout_s)
    yield from jobs
    if all(check.holds for check in jobs):
        yield from asked_nodes(context, settings, needs, cluster)
    else:
        yield _not_asked(False, "not asked while no job can run there")


def _keeper(settings: ReadinessSettings, needs: RunNeeds) -> tuple[Check, Hosting | None, bool]:
    """Whether whoever keeps the clusters answers, and whether the one that trains is there."""
    found: list[tuple[Hosting, bool]] = []

    def reach() -> str:
        hosting = hosting_of(needs.hosting)
        is_there = hosting.is_there()
        found.append((hosting, is_there))
        return f"yes; the cluster that trains is {'there' if is_there else 'not there now, a run makes it'}"

    remedy = "correct hosting's way to the cluster, and look whether it runs"
    (way,) = run_checks([ToCheck("whoever keeps the clusters answers", reach, remedy)], settings.timeout_s)
    return (way, *found[0]) if found and way.holds else (way, None, False)


def _gpus_check(needs: RunNeeds, cluster: ClusterRef) -> ToCheck:
    def look() -> str:
        found = cluster_resources(cluster.jobs_address)
        said = f"{found['gpus_free']:g} of {found['gpus_total']:g} GPUs are free, {needs.num_gpus} are wanted"
        if found["gpus_free"] < needs.num_gpus:
            raise Unready(said)
        return said

    remedy = "end the job that holds them, bring nodes up, or lower cluster.num_gpus"
    return ToCheck("the cluster that trains has its GPUs free", look, remedy)


def _not_asked(holds: bool, found: str) -> Check:
    return Check(
        name=NODES, holds=holds, found=found, remedy="" if holds else "mend what is told above, then ask again"
    )
