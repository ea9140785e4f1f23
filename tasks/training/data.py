"""Stage: check the evaluation set and draw the training mazes. Costs a second, catches what would fail later."""

from __future__ import annotations

from rl.maze.run_mazes import Mazes, prepare_mazes
from rl.settings import DataSettings, MazeSettings
from tasks.records import MazesRef
from tasks.run import Dataset, RunContext
from tasks.stage import stage

TRAINING, SELECTION = "training", "selection"
"""What a set of mazes is for, as MLflow shows it."""


@stage
def prepare_data(context: RunContext, settings: DataSettings) -> MazesRef:
    """The digests of both maze sets and the ceiling of the evaluation; MLflow lists them as the run's inputs.

    Raises EvalSetMismatch or ValueError before anything costly starts.
    """
    mazes = prepare_mazes(settings)
    context.run.inputs(datasets_of(mazes))
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


def datasets_of(mazes: Mazes) -> list[Dataset]:
    """What a run is trained on, and what it is evaluated on."""
    data, size = mazes.data, {"height": mazes.data.maze.height, "width": mazes.data.maze.width}
    return [
        Dataset(
            name=set_name(data.maze, TRAINING),
            digest=mazes.train_sha256,
            context=TRAINING,
            source={"first_seed": mazes.train_seeds[0], "last_seed": mazes.train_seeds[-1]},
            profile={"num_mazes": len(mazes.train_seeds), "ceiling": mazes.train_ceiling, **size},
        ),
        evaluation_set(mazes),
    ]


def evaluation_set(mazes: Mazes) -> Dataset:
    """The fixed mazes by which steps are compared."""
    data, eval_set = mazes.data, mazes.eval_set
    return Dataset(
        name=set_name(data.maze, SELECTION),
        digest=eval_set.sha256,
        context=SELECTION,
        source={"manifest": data.eval_manifest},
        profile={
            "num_mazes": len(eval_set.mazes),
            "ceiling": eval_set.ceiling(data.max_turns),
            "height": data.maze.height,
            "width": data.maze.width,
        },
    )


def set_name(maze: MazeSettings, what_for: str) -> str:
    """Such as ``maze_2d-7x9-selection``; names in MLflow are no paths."""
    return f"{maze.env_id.replace('/', '-')}-{maze.height}x{maze.width}-{what_for}"
