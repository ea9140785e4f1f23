"""The plan flow: what `retrain` would do on the cluster, without doing any of it. No GPU, no account, no cost.

Needs a Prefect API and a training environment on this machine (settings.plan.python).
"""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.settings import PlanFlowSettings
from tasks.plan.sizing import require
from tasks.plan.write import write_plan
from tasks.records import Check
from tasks.training.data import prepare_data


@flow(name="plan")
def plan(settings: PlanFlowSettings) -> dict[str, Any]:
    """Write the plan to ``settings.plan.output_dir`` and return it.

    Raises PlanRefused, after the plan is written, with everything that would keep the run from working.
    """
    run = settings.run
    mazes = prepare_data(run.train.data)
    run_name = run.run_name or run.report.profile
    made = write_plan(
        settings.plan, settings.hyperpod, run.image, run.train, run.serve.server, run.tracking, run_name, mazes
    )
    require(tuple(Check.model_validate(check) for check in made["checks"]))
    return made
