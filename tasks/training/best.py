"""Stage: which step to keep. Only steps with both an evaluation and an export can be served."""

from __future__ import annotations

from rl.maze.score import CannotCompare, require_same_rules
from tasks.errors import EvaluationsDiffer, NothingToExport
from tasks.records import BestStep, TrainedRun
from tasks.run import RunContext
from tasks.stage import stage


@stage
def pick_best(context: RunContext, run: TrainedRun) -> BestStep:
    """The best exported step; raises NothingToExport, or EvaluationsDiffer."""
    return choose_best(run)


def choose_best(run: TrainedRun) -> BestStep:
    """Most mazes solved among exported steps after step 0, the earliest of equals."""
    try:
        require_same_rules(run.evaluations)
    except CannotCompare as error:
        raise EvaluationsDiffer(
            f"no step of run {run.run_name} can be called the best: {error}: give the training another run_name, so "
            "that all of its steps are"
        ) from error
    evaluations = {report.step: report for report in run.evaluations}
    exports = {export.step: export for export in run.exports}
    both = sorted(step for step in evaluations.keys() & exports.keys() if step > 0)
    if 0 not in evaluations or not both:
        raise NothingToExport(
            f"run {run.run_name} has evaluations at steps {sorted(evaluations)} and exports at {sorted(exports)}; the "
            "base (step 0) and a step with both are needed, and the last step of a training has both: run again under "
            "the same run_name, it goes on from its last checkpoint"
        )
    best = max(both, key=lambda step: (evaluations[step].num_solved, -step))
    return BestStep(run=run, base=evaluations[0], best=evaluations[best], export=exports[best])
