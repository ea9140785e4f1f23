"""Stages: judge a proven adapter, and move the champion's name - or move it back."""

from __future__ import annotations

from serving.app import adapter_model_id
from serving.publish import AdapterStore
from serving.store import s3_client
from tasks.clients.mlflow_names import DECISION_TAG
from tasks.errors import NoSuchAdapter, NotProven
from tasks.records import (
    Certificate,
    ChampionChange,
    Contest,
    Evaluations,
    PublishedAdapter,
    ServedEndpoint,
    ServedModel,
    Standing,
    Verdict,
)
from tasks.release.aliases import registry_of
from tasks.release.card import model_card
from tasks.release.gate import judge
from tasks.release.settings import ChampionSettings, GateSettings
from tasks.run import RunContext
from tasks.stage import stage


def contest_of(settings: ChampionSettings, endpoint: ServedEndpoint, adapter: PublishedAdapter) -> Contest:
    """The adapter, its base, and the champion where there is one and it is not this very adapter."""
    manifest = AdapterStore(s3_client(), settings.server.adapters_uri, adapter.name).manifest()
    base = endpoint.base.model_copy(update={"sha256": manifest.base_fingerprint if manifest else ""})
    return Contest(
        candidate=endpoint.serves(adapter), base=base, champion=champion_to_beat(settings, endpoint, adapter)
    )


def champion_to_beat(
    settings: ChampionSettings, endpoint: ServedEndpoint, adapter: PublishedAdapter
) -> ServedModel | None:
    """The champion at this endpoint; None where there is none, or where it is this very adapter."""
    champion = registry_of(settings).reigning()
    if champion is None or champion.adapter_name == adapter.name:
        return None
    model_id = adapter_model_id(settings.server, champion.adapter_name)
    return ServedModel(url=endpoint.url, model_id=model_id, sha256=champion.sha256)


def standing(settings: ChampionSettings) -> Standing | None:
    """Who is champion; None where nobody was promoted. Raises NoSuchAdapter where its files are gone."""
    registry = registry_of(settings)
    name = registry.champion()
    if name is None:
        return None
    store = AdapterStore(s3_client(), settings.server.adapters_uri, name)
    manifest = store.manifest()
    if manifest is None:
        raise NoSuchAdapter(f"{name} is champion and {store.uri} has no manifest; promote another adapter by its name")
    return Standing(
        champion=name,
        sha256=manifest.adapter_sha256,
        since=registry.since(),
        run_name=manifest.run_name,
        step=manifest.step,
        num_solved=manifest.num_solved,
        num_mazes=manifest.num_mazes,
        previous=registry.previous(),
    )


@stage
def judge_adapter(context: RunContext, settings: GateSettings, played: Evaluations) -> Verdict:
    """The gate's verdict, in the log."""
    verdict = judge(settings, played.candidate, played.base, played.champion)
    context.page.say(f"gate: {verdict.decision} - {verdict.reason}")
    context.run.tags({DECISION_TAG: verdict.decision})
    return verdict


@stage
def promote_adapter(
    context: RunContext, settings: ChampionSettings, certificate: Certificate, verdict: Verdict
) -> ChampionChange | None:
    """Register the adapter; move the champion's name when the proof holds and the gate says so."""
    registry = registry_of(settings)
    card = model_card(registry.name, certificate, verdict)
    registry.register(certificate.adapter, context.run.run_id, certificate.endpoint_solved, card)
    context.run.text(card, "model_card.md")
    if not certificate.holds or verdict.decision != "promote":
        context.stages.found("registered; the champion stays")
        return None
    return registry.promote(certificate.adapter.name)


@stage
def move_champion(context: RunContext, settings: ChampionSettings, adapter_name: str) -> ChampionChange:
    """Promote by hand; raises NoSuchAdapter, or NotProven when its certificate is missing or does not hold."""
    registry = registry_of(settings)
    registry.require(adapter_name)
    certificate = AdapterStore(s3_client(), settings.server.adapters_uri, adapter_name).certificate()
    found = None if certificate is None else Certificate.model_validate_json(certificate)
    if found is None or not found.holds:
        why = "has no certificate" if found is None else "; ".join(found.failures)
        raise NotProven(f"{adapter_name}: {why}; only proven adapters become champion")
    change = registry.promote(adapter_name)
    context.page.say(f"champion is {change.champion}, before it was {change.previous}")
    return change


@stage
def roll_champion_back(context: RunContext, settings: ChampionSettings) -> ChampionChange:
    """Go back to the champion before this one; repeated, it stays there."""
    change = registry_of(settings).roll_back()
    context.page.say(
        f"champion is {change.champion} again, rolled back from {change.previous}; promote {change.previous} by its "
        "name to bring it back"
    )
    return change
