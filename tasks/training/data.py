"""Stage: check the evaluation set and draw the training mazes. Costs a second, catches what would fail later."""

from __future__ import annotations

from rl.maze.run_mazes import prepare_mazes
from rl.settings import DataSettings
from tasks.records import MazesRef
from tasks.run import RunContext
from tasks.stage import stage


@stage
def prepare_data(context: RunContext, settings: DataSettings) -> MazesRef:
    """The digests of both maze sets and the ceiling of the evaluation.

    Raises EvalSetMismatch or ValueError before anything costly starts.
    """
    mazes = prepare_mazes(settings)
    return MazesRef(
        height=settings.maze.height,
        width=settings.maze.width,
        eval_sha256=mazes.eval_set.sha256,
        num_eval_mazes=len(mazes.eval_set.mazes),
        ceiling=mazes.eval_set.ceiling(settings.max_turns),
        train_sha256=mazes.train_sha256,
        num_train_mazes=len(mazes.train_seeds),
        train_ceiling=mazes.train_ceiling,
    )
