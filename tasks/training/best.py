"""Stage: which step to keep. Only steps with both an evaluation and an export can be served."""

from __future__ import annotations

from tasks.errors import NothingToExport
from tasks.records import BestStep, TrainedRun
from tasks.run import RunContext
from tasks.stage import stage


@stage
def pick_best(context: RunContext, run: TrainedRun) -> BestStep:
    """The best exported step; raises NothingToExport."""
    return choose_best(run)


def choose_best(run: TrainedRun) -> BestStep:
    """Most mazes solved among exported steps after step 0, the earliest of equals."""
    evaluations = {report.step: report for report in run.evaluations}
    exports = {export.step: export for export in run.exports}
    both = sorted(step for step in evaluations.keys() & exports.keys() if step > 0)
    if 0 not in evaluations or not both:
        raise NothingToExport(
            f"run {run.run_name} has evaluations at steps {sorted(evaluations)} and exports at {sorted(exports)}; the "
            "base (step 0) and a step with both are needed: choose eval_interval and "
            "export_interval with a common multiple"
        )
    best = max(both, key=lambda step: (evaluations[step].num_solved, -step))
    return BestStep(run=run, base=evaluations[0], best=evaluations[best], export=exports[best])
