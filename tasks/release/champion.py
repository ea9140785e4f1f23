"""Stages: judge a proven adapter, and move the champion's name - or move it back."""

from __future__ import annotations

import boto3
from prefect import get_run_logger, task

from rl.maze.score import EvalReport
from serving.publish import AdapterStore
from serving.settings import ServerSettings
from tasks.errors import NotProven
from tasks.records import Certificate, ChampionChange, PublishedAdapter, Verdict
from tasks.release.aliases import registry_of
from tasks.release.gate import judge
from tasks.release.settings import GateSettings
from tasks.settings import TrackingSettings


def current_champion(tracking: TrackingSettings, server: ServerSettings, other_than: str) -> str | None:
    """Name of the adapter that is champion, unless it is ``other_than`` itself."""
    champion = registry_of(tracking, server).champion()
    return None if champion == other_than else champion


@task
def judge_adapter(
    gate: GateSettings,
    candidate: EvalReport,
    base: EvalReport,
    champion: EvalReport | None,
) -> Verdict:
    """The gate's verdict, in the log."""
    verdict = judge(gate, candidate, base, champion)
    get_run_logger().info("gate: %s - %s", verdict.decision, verdict.reason)
    return verdict


@task
def promote_adapter(
    tracking: TrackingSettings,
    server: ServerSettings,
    adapter: PublishedAdapter,
    certificate: Certificate,
    verdict: Verdict,
    mlflow_run_id: str,
) -> ChampionChange | None:
    """Register the adapter; move the champion's name when the proof holds and the gate says so."""
    registry = registry_of(tracking, server)
    registry.register(adapter, mlflow_run_id, verdict.candidate_solved)
    if not certificate.holds or verdict.decision != "promote":
        return None
    return registry.promote(adapter.name)


@task
def move_champion(tracking: TrackingSettings, server: ServerSettings, adapter_name: str) -> ChampionChange:
    """Promote by hand; raises NoSuchAdapter, or NotProven when its certificate is missing or does not hold."""
    registry = registry_of(tracking, server)
    registry.require(adapter_name)
    certificate = AdapterStore(boto3.client("s3"), server.adapters_uri, adapter_name).certificate()
    found = None if certificate is None else Certificate.model_validate_json(certificate)
    if found is None or not found.holds:
        why = "has no certificate" if found is None else "; ".join(found.failures)
        raise NotProven(f"{adapter_name}: {why}; only proven adapters become champion")
    change = registry.promote(adapter_name)
    get_run_logger().info("champion is %s, before it was %s", change.champion, change.previous)
    return change


@task
def roll_champion_back(tracking: TrackingSettings, server: ServerSettings) -> ChampionChange:
    """Go back to the champion before this one."""
    change = registry_of(tracking, server).roll_back()
    get_run_logger().info("champion is %s again, rolled back from %s", change.champion, change.previous)
    return change
