"""A stage is a Prefect task that is handed the run's context first, and whose course the context notes.

Nothing is cached: what a stage did is found again where it did it, by name and digest. Nothing is repeated by Prefect,
whatever its own settings say: who asks again is told where it is done (tasks/clients/retry.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, cast

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import task_run

from tasks.records import in_words
from tasks.run import RunContext


def stage[**P, R](
    function: Callable[Concatenate[RunContext, P], R],
) -> Task[Concatenate[RunContext, P], R]:
    """Make ``function(context, own settings, previous records)`` a stage, named as the function is."""
    return named_stage(None)(function)


def named_stage[**P, R](
    task_run_name: str | None,
) -> Callable[[Callable[Concatenate[RunContext, P], R]], Task[Concatenate[RunContext, P], R]]:
    """The same for a stage that is called more than once: each call is named by its arguments, in Prefect's way."""

    def decorate(function: Callable[Concatenate[RunContext, P], R]) -> Task[Concatenate[RunContext, P], R]:
        @wraps(function)
        def run(context: RunContext, *args: P.args, **kwargs: P.kwargs) -> R:
            attempt: Any = task_run.run_count
            about = task_run.name if task_run_name else ""
            with context.stages.noted(function.__name__, attempt or 1, about or "") as noted:
                result = function(context, *args, **kwargs)
                noted.found = noted.found or in_words(result)
                return result

        made = Task(run, name=function.__name__, task_run_name=task_run_name, cache_policy=NO_CACHE, retries=0)
        return cast("Task[Concatenate[RunContext, P], R]", made)

    return decorate
