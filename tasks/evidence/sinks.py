"""Job news -> Prefect log, progress and table artifacts, MLflow metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact

from rl.maze.score import EvalReport
from tasks.clients.mlflow_runs import MlflowRuns


class PrefectSinks:
    """The sinks of one followed job (tasks/jobs/follow.py)."""

    def __init__(self, logger: Any, mlflow: MlflowRuns, run_id: str, run_name: str) -> None:
        self._logger, self._mlflow, self._run_id, self._run_name = logger, mlflow, run_id, run_name
        self._progress_id: UUID | None = None
        self._rows: list[dict[str, Any]] = []

    def line(self, text: str) -> None:
        self._logger.info(text)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(self._run_id, step, values)

    def progress(self, done: int, total: int, text: str) -> None:
        percent = 100.0 * done / total
        description = f"{self._run_name}: step {done} of {total}, {text}"
        if self._progress_id is None:
            made = create_progress_artifact(progress=percent, key=f"{self._run_name}-progress", description=description)
            self._progress_id = made if isinstance(made, UUID) else None
        else:
            update_progress_artifact(artifact_id=self._progress_id, progress=percent, description=description)
        self._logger.info("step %d of %d: %s", done, total, text)

    def evaluation(self, report: EvalReport) -> None:
        self._rows.append(
            {
                "step": report.step,
                "solved": f"{report.num_solved} of {report.num_mazes}",
                "mean turns": round(report.mean_turns, 2),
                "unparsable replies": report.unparsable_replies,
            }
        )
        create_table_artifact(table=self._rows, key=f"{self._run_name}-evaluations", description="Evaluations so far")
        self._logger.info("step %d solves %d of %d mazes", report.step, report.num_solved, report.num_mazes)
        self._mlflow.log_text(
            self._run_id, report.model_dump_json(indent=1), f"evaluations/step_{report.step:06d}.json"
        )
