"""The plan flow: what `retrain` would do on the cluster, without doing any of it. No GPU, no account, no cost.

Needs a Prefect API and a training environment on this machine (platform.plan.python).
"""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.knobs import Knobs
from flows.settings.plan import PlanFlowSettings, PlanPlatform
from tasks.evidence.tracking import untracked_run
from tasks.plan.sizing import require
from tasks.plan.write import write_plan
from tasks.records import Check
from tasks.training.data import prepare_data


@flow(name="plan", retries=0)
def plan(knobs: Knobs, platform: PlanPlatform) -> dict[str, Any]:
    """Write the plan to ``platform.plan.output_dir`` and return it.

    Raises PlanRefused, after the plan is written, with everything that would keep the run from working.
    """
    settings = PlanFlowSettings.of(platform, knobs)
    name = settings.run_name or settings.report.profile
    settings, context = settings.of_run(name), untracked_run(name)
    mazes = prepare_data(context, settings.train.data)
    made = write_plan(context, settings.plan, settings.planned, mazes)
    require(tuple(Check.model_validate(check) for check in made["checks"]))
    return made
