"""Which step is kept."""

from __future__ import annotations

import pytest

from tasks.errors import EvaluationsDiffer, NothingToExport
from tasks.training.best import choose_best
from tests.unit.samples import OTHER_RULES, by_other_rules, trained


@pytest.mark.parametrize(
    ("solved", "exported", "best"),
    [
        ({0: 28, 10: 40, 20: 50, 30: 60, 40: 55}, [20, 40], 40),  # the peak at 30 has no export
        ({0: 28, 10: 50, 20: 50}, [10, 20], 10),  # the earliest of equals
        ({0: 28, 10: 20}, [10, 8], 10),  # worse than the base is still the best exported step
    ],
)
def test_the_best_step_has_both_an_evaluation_and_an_export(
    solved: dict[int, int], exported: list[int], best: int
) -> None:
    chosen = choose_best(trained(solved, exported))
    assert (chosen.best.step, chosen.export.step, chosen.base.step) == (best, best, 0)


@pytest.mark.parametrize(("solved", "exported"), [({0: 1, 10: 2}, [8]), ({10: 2}, [10]), ({0: 1}, [])])
def test_a_run_without_such_a_step_says_what_is_missing(solved: dict[int, int], exported: list[int]) -> None:
    with pytest.raises(NothingToExport, match="run again under the same run_name"):
        choose_best(trained(solved, exported))


@pytest.mark.parametrize("rule", sorted(OTHER_RULES))
@pytest.mark.parametrize("odd", [0, 1, 2])
def test_no_step_is_best_among_evaluations_by_different_rules(rule: str, odd: int) -> None:
    run = trained({0: 28, 10: 40, 20: 50}, [10, 20])
    evaluations = list(run.evaluations)
    evaluations[odd] = by_other_rules(evaluations[odd], rule)
    with pytest.raises(EvaluationsDiffer, match=rf"no step of run r .* {rule}.*another run_name"):
        choose_best(run.model_copy(update={"evaluations": tuple(evaluations)}))
