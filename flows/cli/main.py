"""``maze-retrain``: what people type. ``maze-retrain --help`` says the rest.

What a command needs is imported when it runs: help and completion must not wait for Prefect, MLflow or Ray.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.failure import BAD_INPUT, FAILED, NOT_RUNNING

if TYPE_CHECKING:
    from rich.console import Console

    from flows.cli.screen import Screen
    from tasks.clients.mlflow_history import RunHistory

HELP = """Retrain a maze agent: train it, serve it, keep it if it is better, and see what became of it.

[bold]A first run[/bold], on this machine and without a GPU (about 15 minutes):

    maze-retrain up

    maze-retrain run

    maze-retrain chat

[bold]Knobs[/bold] are given as key=value: maze-retrain run max_steps=4 learning_rate=0.0005

[bold]Exit codes[/bold]: 0 it went well - 1 it failed - 2 what was typed cannot be run, and nothing was started -
3 a service that it needs does not run - 130 stopped by Ctrl-C - 143 by SIGTERM - 129 its terminal was closed
"""
RUNNING, LOOKING, SERVICES = "Train and decide", "Look", "Services"
KEEP_QUIET = {
    # Prefect's log goes to its server; the screen has lines of its own.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
}

app = typer.Typer(
    name="maze-retrain", help=HELP, rich_markup_mode="rich", no_args_is_help=True, pretty_exceptions_enable=False
)
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", envvar="VERBOSE", help="Show every log line, and where errors come from.")
]


@app.command(rich_help_panel=RUNNING)
def run(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROFILE] [KEY=VALUE]...", help="local (the default), local-long or hyperpod; knobs."),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Run the whole pipeline: data, training, serving, evaluation, gate.

    A knob is named bare (max_steps=4), everything else by its path with platform. in front
    (platform.train.engine.max_num_seqs=32). A run that was given a name
    (run_name=NAME) goes on where it ended when it is run again. PROFILE may also be another deployment of
    prefect.yaml by its full name, such as evaluate/local.
    """
    profile, knobs = "local", list(arguments or [])
    if knobs and "=" not in knobs[0]:
        profile = knobs.pop(0)
    _run_deployment(profile if "/" in profile else f"retrain/{profile}", knobs, verbose)


@app.command(rich_help_panel=RUNNING)
def plan(
    profile: Annotated[str, typer.Argument(help="What is planned.")] = "hyperpod",
    knobs: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    verbose: Verbose = False,
) -> None:
    """Say what a run on AWS would create, take and cost. Needs no account and no GPU, and creates nothing."""
    from flows.cli.services import ROOT

    os.environ.setdefault("PREFECT_HOME", str(ROOT / ".local" / "prefect-plan"))
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "180")
    _run_deployment(f"plan/{profile}", knobs or [], verbose)


@app.command(rich_help_panel=RUNNING)
def rollback(verbose: Verbose = False) -> None:
    """Make the champion before this one champion again, at once; a second time changes nothing."""
    _run_deployment("rollback/local", [], verbose)


@app.command(rich_help_panel=RUNNING)
def cleanup(
    run_name: Annotated[str, typer.Argument(metavar="RUN", help="Name of the run.")],
    remove: Annotated[bool, typer.Option("--remove", help="Remove it; without this it is only listed.")] = False,
    profile: Annotated[str, typer.Option(help="Where it ran: local or hyperpod.")] = "local",
    verbose: Verbose = False,
) -> None:
    """Show what a run left behind and what it costs; the champion and the one before it always stay."""
    dry_run = "false" if remove else "true"
    _run_deployment(f"cleanup/{profile}", [f"run_name={run_name}", f"dry_run={dry_run}"], verbose)


@app.command(rich_help_panel=LOOKING)
def status(verbose: Verbose = False) -> None:
    """What runs now, how far it is; the champion; the services."""
    with _told(verbose) as console:
        from flows.cli.overview import services_table, under_way
        from flows.cli.services import local_services

        services = local_services(lambda text: None)
        pids = {name: found.pid for name, found in services.running().items()}
        console.print(services_table(pids, {**services.environment(), **os.environ}), highlight=False)
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            console.print("nothing is known of runs while MLflow does not run: `maze-retrain up`", highlight=False)
            return
        lines = under_way(_history().latest(10, "RUNNING")) or ["no run is under way"]
        for line in [*lines, _champion_line()]:
            console.print(line, soft_wrap=True, highlight=False, markup=False)


@app.command(rich_help_panel=LOOKING)
def runs(
    number: Annotated[int, typer.Option("--number", "-n", min=1, max=1000, help="How many.")] = 15,
    verbose: Verbose = False,
) -> None:
    """A table of the last runs: state, steps, best solve rate, whether it was promoted."""
    with _told(verbose) as console:
        from flows.cli.overview import runs_table

        console.print(runs_table(_history().latest(number)), highlight=False)


@app.command(rich_help_panel=LOOKING)
def compare(
    names: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Names of runs, as `runs` lists them.")],
    verbose: Verbose = False,
) -> None:
    """Settings that differ, results, who is better maze by maze, cost; written as page, CSV and curves, too."""
    with _told(verbose) as console:
        _require("MLFLOW_TRACKING_URI")
        from flows.cli.compare import show_comparison

        show_comparison(console, names)


@app.command(rich_help_panel=LOOKING)
def champion(verbose: Verbose = False) -> None:
    """Who is champion: since when, of which run, how many mazes it solved."""
    with _told(verbose) as console:
        console.print(_champion_line(), soft_wrap=True, highlight=False, markup=False)


@app.command(rich_help_panel=LOOKING)
def chat(
    model: Annotated[str, typer.Option(help="As /v1/models lists it; the champion where none is named.")] = "",
    seed: Annotated[int | None, typer.Option(help="The maze; the first of the evaluation set by default.")] = None,
    gif: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path(".local/chat.gif"),
    verbose: Verbose = False,
) -> None:
    """Watch one maze being played through the endpoint, turn by turn and as an animated picture."""
    gif = gif if gif.is_absolute() or gif == Path(".local/chat.gif") else Path.cwd() / gif
    with _told(verbose):
        _require("SERVE_URL", "MLFLOW_TRACKING_URI")
        from flows.cli.chat import watch_one

        watch_one(model, seed, gif)


@app.command(rich_help_panel=SERVICES)
def up() -> None:
    """Start what does not run yet on this machine: Prefect, MLflow, an object store, two Ray clusters."""
    _keep_services(lambda services: services.up())


@app.command(rich_help_panel=SERVICES)
def down() -> None:
    """Stop the services that `up` started; everything they know is kept."""
    _keep_services(lambda services: services.down())


@app.command(rich_help_panel=SERVICES)
def deploy(
    profile: Annotated[str, typer.Argument(help="local, or hyperpod: what runs on AWS, at your server.")] = "local",
    verbose: Verbose = False,
) -> None:
    """Register the deployments, so that runs can be started and scheduled in the Prefect UI."""
    with _told(verbose) as console:
        _require("PREFECT_API_URL")
        from flows.cli.deploy import register

        register(console, profile)


@app.command(rich_help_panel=SERVICES)
def worker(pool: Annotated[str, typer.Option(help="Work pool.")] = "local") -> None:
    """Run what is started in the Prefect UI, until Ctrl-C."""
    with _told(True):
        from flows.cli.services import take_ray_token

        _require("PREFECT_API_URL")
        take_ray_token()
        program = str(Path(sys.executable).with_name("prefect"))
        os.execv(program, [program, "worker", "start", "--pool", pool])


def _run_deployment(name: str, knobs: list[str], verbose: bool) -> None:
    with _told(verbose) as console:
        from flows.cli.run import run_deployment

        code = run_deployment(name, knobs, _screen(console, verbose), verbose)
    raise typer.Exit(code)


@contextmanager
def _told(verbose: bool) -> Iterator[Console]:
    """A console in the project's folder; what cannot be run ends here in a line of its own."""
    from rich.console import Console

    from flows.cli.services import BadKnob, NotRunning, enter_project
    from tasks.errors import StageError

    if not verbose:
        os.environ.update({name: value for name, value in KEEP_QUIET.items() if name not in os.environ})
        warnings.simplefilter("ignore")
        # A line for each job that is over.
        logging.getLogger("ray.dashboard.modules.job.sdk").setLevel(logging.WARNING)
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


def _fail(text: str, code: int) -> None:
    for line in text.splitlines():
        typer.echo(f"error: {line}", err=True)
    raise typer.Exit(code)


def _screen(console: Console, verbose: bool) -> Screen:
    from flows.cli.screen import Screen

    return Screen(console, os.environ, is_live=console.is_terminal and not verbose)


def _keep_services(do: Callable[..., object]) -> None:
    from flows.cli.services import local_services
    from tasks.local.process import ServiceFailed

    try:
        do(local_services(typer.echo))
    except ServiceFailed as error:
        _fail(str(error), FAILED)


def _require(*names: str) -> None:
    from flows.cli.services import require, take_local_store

    take_local_store()
    require(names)


def _history() -> RunHistory:
    _require("MLFLOW_TRACKING_URI")
    from flows.deployments import load_settings
    from tasks.clients.mlflow_history import RunHistory

    tracking = load_settings("rollback/local", {}).tracking
    return RunHistory(tracking.tracking_uri, tracking.experiment)


def _champion_line() -> str:
    _require("MLFLOW_TRACKING_URI")
    from flows.deployments import load_settings
    from tasks.release.champion import standing

    found = standing(load_settings("rollback/local", {}))
    return found.in_words() if found else "there is no champion yet"


def main() -> None:
    app()
