"""Stage: the evaluation mazes through the served endpoint, model by model."""

from __future__ import annotations

from prefect import get_run_logger, task

from rl.maze.run_mazes import prepare_mazes
from rl.maze.score import EvalReport
from rl.settings import DataSettings
from tasks.release.play import play_eval_set
from tasks.release.settings import PlaySettings


@task(task_run_name="evaluate-{model_id}")
def evaluate_endpoint(settings: PlaySettings, data: DataSettings, url: str, model_id: str, step: int) -> EvalReport:
    """Play every maze of the set once; raises what the endpoint raises, and EvalSetMismatch before the first maze."""
    logger = get_run_logger()
    eval_set = prepare_mazes(data).eval_set

    def progress(done: int, total: int) -> None:
        if done % 16 == 0 or done == total:
            logger.info("%s: %d of %d mazes played", model_id, done, total)

    report = play_eval_set(
        url, model_id, step, eval_set, data, settings.max_reply_tokens, settings.num_concurrent, progress
    )
    logger.info("%s solves %d of %d", model_id, report.num_solved, report.num_mazes)
    return report
