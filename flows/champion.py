"""Moving the champion's name by hand: promote an adapter by its name, or roll back to the one before."""

from __future__ import annotations

from prefect import flow

from flows.settings import PromoteSettings
from tasks.evidence.tracking import untracked_run
from tasks.records import ChampionChange
from tasks.release.champion import move_champion, roll_champion_back
from tasks.release.settings import ChampionSettings


@flow(name="promote")
def promote(settings: PromoteSettings) -> ChampionChange:
    """Make a registered adapter with a certificate that holds the champion; nothing is deployed."""
    return move_champion(untracked_run("promote"), settings, settings.adapter_name)


@flow(name="rollback")
def rollback(settings: ChampionSettings) -> ChampionChange:
    """Make the former champion champion again; nothing is deployed."""
    return roll_champion_back(untracked_run("rollback"), settings)
