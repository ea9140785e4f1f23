"""What the commands share: where they work, how they end, and what they ask first.

What it takes is imported when it is needed: help and completion must not wait for Prefect, MLflow or Ray.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from flows.cli.failure import BAD_INPUT, FAILED, NOT_RUNNING

if TYPE_CHECKING:
    from rich.console import Console

    from flows.cli.screen import Screen
    from tasks.clients.mlflow_history import RunHistory

KEEP_QUIET = {
    # Prefect's log goes to its server; the screen has lines of its own.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
}


def run_deployment(name: str, knobs: list[str], verbose: bool) -> None:
    with told(verbose) as console:
        from flows.cli import run

        code = run.run_deployment(name, knobs, _screen(console, verbose), verbose)
    raise typer.Exit(code)


@contextmanager
def told(verbose: bool) -> Iterator[Console]:
    """A console in the project's folder; what cannot be run ends here in a line of its own."""
    from rich.console import Console

    from flows.cli.services import BadKnob, NotRunning, enter_project
    from tasks.errors import StageError

    if not verbose:
        os.environ.update({name: value for name, value in KEEP_QUIET.items() if name not in os.environ})
        warnings.simplefilter("ignore")
        # A line for each job that is over. Not by a level: the module sets its own when it is loaded, later than this.
        logging.getLogger("ray.dashboard.modules.job.sdk").addFilter(_is_warning)
    try:
        enter_project()
        yield Console(highlight=False)
    except BadKnob as error:
        _fail(str(error), BAD_INPUT)
    except NotRunning as error:
        _fail(str(error), NOT_RUNNING)
    except StageError as error:
        _fail(str(error), FAILED)
    except Exception as error:
        if verbose or isinstance(error, typer.Exit):
            raise
        first = next(iter(str(error).splitlines()), "")
        _fail(f"{type(error).__name__}: {first}; VERBOSE=1 shows where it comes from", FAILED)


def _is_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING


def _fail(text: str, code: int) -> None:
    for line in text.splitlines():
        typer.echo(f"error: {line}", err=True)
    raise typer.Exit(code)


def _screen(console: Console, verbose: bool) -> Screen:
    from flows.cli.screen import Screen

    return Screen(console, os.environ, is_live=console.is_terminal and not verbose)


def keep_services(do: Callable[..., object]) -> None:
    from flows.cli.services import local_services
    from tasks.local.process import ServiceFailed

    try:
        do(local_services(typer.echo))
    except ServiceFailed as error:
        _fail(str(error), FAILED)


def require(*names: str) -> None:
    from flows.cli import services

    services.take_local_store()
    services.require(names)


def history() -> RunHistory:
    require("MLFLOW_TRACKING_URI")
    from flows.deployments import load_settings
    from tasks.clients.mlflow_history import RunHistory

    tracking = load_settings("rollback/local", {}).tracking
    return RunHistory(tracking.tracking_uri, tracking.experiment)


def champion_line() -> str:
    require("MLFLOW_TRACKING_URI")
    from flows.deployments import load_settings
    from tasks.release.champion import standing

    found = standing(load_settings("rollback/local", {}))
    return found.in_words() if found else "there is no champion yet"
