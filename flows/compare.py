"""The compare flow: runs of the pipeline beside each other, by what MLflow holds of them."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.knobs import CompareKnobs
from flows.names import default_name
from flows.settings.champion import CompareFlowSettings, ComparePlatform
from tasks.evidence.compare import compare_and_show
from tasks.evidence.tracking import tracked_run


@flow(name="compare", retries=0)
def compare(knobs: CompareKnobs, platform: ComparePlatform) -> dict[str, Any]:
    """Which settings differ, what came of them, who is better maze by maze, what it cost; on the page and in MLflow."""
    settings = CompareFlowSettings.of(platform, knobs)
    name, params = default_name("compare"), {"runs": ", ".join(settings.runs)}
    with tracked_run(settings.tracking, name, params, "comparison") as context:
        return compare_and_show(context, settings)
