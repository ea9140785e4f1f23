"""The evaluate flow: the fixed mazes against any OpenAI-compatible endpoint and model id, result in MLflow."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.knobs import EvaluateKnobs
from flows.names import default_name
from flows.settings.champion import EvaluatePlatform, EvaluateSettings
from tasks.evidence.evaluation import keep_evaluation
from tasks.evidence.tracking import tracked_run
from tasks.release.evaluate import evaluate_endpoint


@flow(name="evaluate", retries=0)
def evaluate(knobs: EvaluateKnobs, platform: EvaluatePlatform) -> dict[str, Any]:
    """Play the mazes and log the solve rate, every maze's outcome and its replay."""
    settings = EvaluateSettings.of(platform, knobs)
    run_name = default_name("evaluate")
    params, tags = settings.model_dump(mode="json"), {"maze.model_id": settings.model_id}
    with tracked_run(settings.tracking, run_name, params, "evaluation", tags) as context:
        report = evaluate_endpoint(context, settings.evaluation, settings.model)
        keep_evaluation(context, report)
    solved = {"solved": report.num_solved, "num_mazes": report.num_mazes}
    return {"model_id": settings.model_id, **solved, "mlflow": {"url": context.run.url}}
