"""``maze-retrain``: what people type. ``maze-retrain --help`` says the rest.

What a command needs is imported when it runs: help and completion must not wait for Prefect, MLflow or Ray.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import champion_line, history, keep_services, require, run_deployment, told

HELP = """Retrain a maze agent: train it, serve it, keep it if it is better, and see what became of it.

[bold]A first run[/bold], on this machine and without a GPU (15 to 30 minutes):

    maze-retrain up

    maze-retrain run

    maze-retrain chat

[bold]Knobs[/bold] are given as key=value: maze-retrain run max_steps=4 learning_rate=0.0005

[bold]Exit codes[/bold]: 0 it went well - 1 it failed - 2 what was typed cannot be run, and nothing was started -
3 a service that it needs does not run - 130 stopped by Ctrl-C - 143 by SIGTERM - 129 its terminal was closed
"""
RUNNING, LOOKING, SERVICES = "Train and decide", "Look", "Services"

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
        typer.Argument(
            metavar="[PROFILE] [KEY=VALUE]...", help="local (the default), local-long, hyperpod or kuberay; knobs."
        ),
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
    run_deployment(profile if "/" in profile else f"retrain/{profile}", knobs, verbose)


@app.command(rich_help_panel=RUNNING)
def plan(
    profile: Annotated[str, typer.Argument(help="What is planned: hyperpod or kuberay.")] = "hyperpod",
    knobs: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    verbose: Verbose = False,
) -> None:
    """Say what a run on a cluster would create, take and cost. Needs no account and no GPU, and creates nothing."""
    from flows.cli.services import ROOT

    os.environ.setdefault("PREFECT_HOME", str(ROOT / ".local" / "prefect-plan"))
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "180")
    run_deployment(f"plan/{profile}", knobs or [], verbose)


@app.command(rich_help_panel=RUNNING)
def rollback(verbose: Verbose = False) -> None:
    """Make the champion before this one champion again, at once; a second time changes nothing."""
    run_deployment("rollback/local", [], verbose)


@app.command(rich_help_panel=RUNNING)
def cleanup(
    run_name: Annotated[str, typer.Argument(metavar="RUN", help="Name of the run.")],
    remove: Annotated[bool, typer.Option("--remove", help="Remove it; without this it is only listed.")] = False,
    profile: Annotated[str, typer.Option(help="Where it ran: local, hyperpod or kuberay.")] = "local",
    verbose: Verbose = False,
) -> None:
    """Show what a run left behind and what it costs; the champion and the one before it always stay."""
    dry_run = "false" if remove else "true"
    run_deployment(f"cleanup/{profile}", [f"run_name={run_name}", f"dry_run={dry_run}"], verbose)


@app.command(rich_help_panel=LOOKING)
def status(verbose: Verbose = False) -> None:
    """What runs now, how far it is; the champion; the services."""
    with told(verbose) as console:
        from flows.cli.overview import services_table, under_way
        from flows.cli.services import local_services

        services = local_services(lambda text: None)
        pids = {name: found.pid for name, found in services.running().items()}
        console.print(services_table(pids, {**services.environment(), **os.environ}), highlight=False)
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            console.print("nothing is known of runs while MLflow does not run: `maze-retrain up`", highlight=False)
            return
        lines = under_way(history().latest(10, "RUNNING")) or ["no run is under way"]
        for line in [*lines, champion_line()]:
            console.print(line, soft_wrap=True, highlight=False, markup=False)


@app.command(rich_help_panel=LOOKING)
def runs(
    number: Annotated[int, typer.Option("--number", "-n", min=1, max=1000, help="How many.")] = 15,
    verbose: Verbose = False,
) -> None:
    """A table of the last runs: state, steps, best solve rate, whether it was promoted."""
    with told(verbose) as console:
        from flows.cli.overview import runs_table

        console.print(runs_table(history().latest(number)), highlight=False)


@app.command(rich_help_panel=LOOKING)
def compare(
    names: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Names of runs, as `runs` lists them.")],
    verbose: Verbose = False,
) -> None:
    """Settings that differ, results, who is better maze by maze, cost; written as page, CSV and curves, too."""
    with told(verbose) as console:
        require("MLFLOW_TRACKING_URI")
        from flows.cli.compare import show_comparison

        show_comparison(console, names)


@app.command(rich_help_panel=LOOKING)
def champion(verbose: Verbose = False) -> None:
    """Who is champion: since when, of which run, how many mazes it solved."""
    with told(verbose) as console:
        console.print(champion_line(), soft_wrap=True, highlight=False, markup=False)


@app.command(rich_help_panel=LOOKING)
def chat(
    model: Annotated[str, typer.Option(help="As /v1/models lists it; the champion where none is named.")] = "",
    seed: Annotated[int | None, typer.Option(help="The maze; the first of the evaluation set by default.")] = None,
    gif: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path(".local/chat.gif"),
    verbose: Verbose = False,
) -> None:
    """Watch one maze being played through the endpoint, turn by turn and as an animated picture."""
    gif = gif if gif.is_absolute() or gif == Path(".local/chat.gif") else Path.cwd() / gif
    with told(verbose):
        require("SERVE_URL", "MLFLOW_TRACKING_URI")
        from flows.cli.chat import watch_one

        watch_one(model, seed, gif)


@app.command(rich_help_panel=LOOKING)
def doctor(
    profile: Annotated[str, typer.Argument(help="local, local-long, hyperpod or kuberay.")] = "local",
    verbose: Verbose = False,
) -> None:
    """Say, check by check, whether everything answers that a run needs. Starts no run; exit code 1 where one fails."""
    with told(verbose) as console:
        from flows.cli.doctor import examine

        code = examine(console, profile)
    raise typer.Exit(code)


@app.command(rich_help_panel=SERVICES)
def up() -> None:
    """Start what does not run yet on this machine: Prefect, MLflow, an object store, two Ray clusters."""
    keep_services(lambda services: services.up())


@app.command(rich_help_panel=SERVICES)
def down() -> None:
    """Stop the services that `up` started; everything they know is kept."""
    keep_services(lambda services: services.down())


@app.command(rich_help_panel=SERVICES)
def deploy(
    profile: Annotated[
        str, typer.Argument(help="local; hyperpod or kuberay: what runs there, at your server.")
    ] = "local",
    verbose: Verbose = False,
) -> None:
    """Register the deployments, so that runs can be started and scheduled in the Prefect UI."""
    with told(verbose) as console:
        require("PREFECT_API_URL")
        from flows.cli.deploy import register

        register(console, profile)


@app.command(rich_help_panel=SERVICES)
def worker(pool: Annotated[str, typer.Option(help="Work pool.")] = "local") -> None:
    """Run what is started in the Prefect UI, until Ctrl-C."""
    with told(True):
        from flows.cli.services import take_ray_token

        require("PREFECT_API_URL")
        take_ray_token()
        program = str(Path(sys.executable).with_name("prefect"))
        os.execv(program, [program, "worker", "start", "--pool", pool])


def main() -> None:
    app()
