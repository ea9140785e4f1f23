"""Moving the champion's name by hand: promote an adapter by its name, or roll back to the one before."""

from __future__ import annotations

from prefect import flow

from flows.knobs import PromoteKnobs
from flows.settings.champion import PromotePlatform, PromoteSettings, RollbackPlatform, RollbackSettings
from tasks.evidence.tracking import untracked_run
from tasks.records import ChampionChange
from tasks.release.champion import move_champion, roll_champion_back


@flow(name="promote", retries=0)
def promote(knobs: PromoteKnobs, platform: PromotePlatform) -> ChampionChange:
    """Make a registered adapter with a certificate that holds the champion; nothing is deployed."""
    settings = PromoteSettings.of(platform, knobs)
    return move_champion(untracked_run("promote"), settings, settings.adapter_name)


@flow(name="rollback", retries=0)
def rollback(platform: RollbackPlatform) -> ChampionChange:
    """Make the former champion champion again; nothing is deployed."""
    return roll_champion_back(untracked_run("rollback"), RollbackSettings.of(platform))
