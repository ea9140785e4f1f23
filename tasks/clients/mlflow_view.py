"""A look at the table of runs that MLflow's page offers under *Views*: who was promoted, how sure, at what cost.

MLflow keeps it as a tag of the experiment, in its page's own form (mlflow 3.17, js/build: the module that writes
``mlflow.sharedViewState.`` tags, ``JSON.stringify({name, createdAt, updatedAt, state})``; the state has the fields of
its runs page).
"""

from __future__ import annotations

import json
import time
from typing import Any

from tasks.clients.mlflow_names import DECISION_TAG, ROLE_TAG, TRAINING_PAGES

VIEW_NAME, VIEW_KEY = "Retrainings", "retrainings"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW_KEY}"
COLUMNS = {
    "tags": (DECISION_TAG,),
    "metrics": (
        *("judge/solve_rate", "judge/gain", "judge/p_value"),
        *("base/solved", "best/solved", "best/step", "stage/whole_run_s", "cost/usd"),
    ),
    "params": ("max_steps", "learning_rate", "rollouts_per_maze", "profile", "note"),
}
"""From left to right."""
LETTER_PX, MARGIN_PX = 7, 30
LINES = (
    *("eval/solve_rate", "train/reward", "train/solve_rate"),
    *("train/groups_without_signal", "train/policy_drift", "time/step_s"),
)
BARS = ("judge/solve_rate", "judge/gain")
"""Charts that stand above the others, which MLflow makes of all other metrics."""
SECTION = "What matters"


def view_document(now_ms: int | None = None) -> str:
    """The tag's value."""
    columns = {f"{kind}.`{name}`": name for kind, names in COLUMNS.items() for name in names}
    state = {
        "searchFilter": f"tags.`{ROLE_TAG}` = 'pipeline'",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": list(columns),
        "columnOrder": list(columns),
        "columnWidths": {column: MARGIN_PX + LETTER_PX * len(name) for column, name in columns.items()},
        "compareRunCharts": [_chart("LINE", name) for name in LINES] + [_chart("BAR", name) for name in BARS],
        "compareRunSections": [{"uuid": SECTION, "name": SECTION, "display": True, "isReordered": True}],
        # Else sections stand in the order of their names.
        "isAccordionReordered": True,
    }
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    return json.dumps({"name": VIEW_NAME, "createdAt": now_ms, "updatedAt": now_ms, "state": json.dumps(state)})


def _chart(kind: str, metric: str) -> dict[str, Any]:
    """A card of the page's chart view; lines lie over the training steps."""
    chart = {"type": kind, "uuid": metric, "metricSectionId": SECTION, "metricKey": metric, "displayName": metric}
    line = {"xAxisKey": "step", "useGlobalXaxisKey": True, "lineSmoothness": 0, "range": {}}
    # The page would make lines of its own bars where a metric has a step above 0.
    return {**chart, "runsCountToCompare": 10, "isGenerated": kind == "LINE", **(line if kind == "LINE" else {})}


def all_runs_url(run_url: str) -> str:
    """The table of runs with that look, from a run's page; empty where there is none."""
    experiment, _, _ = run_url.partition("/runs/")
    return f"{experiment}/runs{TRAINING_PAGES}&viewStateShareKey={VIEW_KEY}" if run_url else ""
