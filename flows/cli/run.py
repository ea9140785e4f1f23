"""A deployment's flow, here and now: what a worker would do in its own process happens in this one.

The flow run appears in the Prefect UI as any other. Nothing of Prefect is imported before the screen is made.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from rich.console import Console

from flows.cli.failure import DONE, FAILED, Failure, failure_of
from flows.cli.interrupt import Stops
from flows.cli.result import leftovers, show
from flows.cli.screen import Screen
from flows.cli.services import BadKnob, require, take_local_store, take_ray_token
from flows.cli.typed import Ambiguous
from flows.cli.words import HARMLESS_ON_CPU
from tasks.records import Record
from tasks.watch import watched_by

_PLACEHOLDER = re.compile(r"\{\{\s*\$(\w+)\s*\}\}")


def run_deployment(name: str, arguments: Sequence[str], screen: Screen, is_verbose: bool) -> int:
    """Run it to its end and return the exit code. Raises BadKnob, NotRunning before anything has started."""
    flow, parameters = prepared(name, arguments)
    screen.overlook(harmless_in(parameters))
    stops = Stops(screen)
    try:
        with watched_by(screen), watched_by(stops.watch), screen.shown(), stops.heeded():
            result = flow(**parameters)
    except BaseException as error:
        if stops.code:
            screen.line(f"{screen.run_name or name} has stopped", "stopped", "yellow")
            _show_left(screen)
            return stops.code
        if not isinstance(error, Exception):
            raise
        if is_verbose:
            traceback.print_exc()
        _show_left(screen)
        show_failure(screen.console, failure_of(error, screen.failed_stage, screen.log_path or screen.page))
        return FAILED
    show_result(screen, result)
    return DONE


def harmless_in(parameters: Mapping[str, Any]) -> Collection[str]:
    """Beginnings of warnings that mean nothing where the run's jobs run."""
    platform = parameters.get("platform")
    engine = platform["train"]["engine"] if isinstance(platform, Mapping) and "train" in platform else {}
    return HARMLESS_ON_CPU if engine.get("device") == "cpu" else ()


def prepared(name: str, arguments: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """The flow and its validated parameters; the environment has what the deployment's runs get."""
    from flows.cli.knobs import overrides_of
    from flows.deployments import UnknownSetting, deployments, job_env, load_deployment
    from flows.refusals import SettingsRefused

    known = deployments()
    if name not in known:
        raise BadKnob(no_deployment(name, known))
    wanted = _PLACEHOLDER.findall(str(known[name]["parameters"]))
    require([variable for variable in dict.fromkeys(wanted) if variable != "PROJECT_DIR"])
    if "SERVE_URL" in wanted or "SERVE_LISTEN" in wanted:
        take_local_store()
    if "RAY_JOBS_ADDRESS" in wanted or "SERVE_DASHBOARD" in wanted:
        take_ray_token()
    try:
        flow, parameters = load_deployment(name, overrides_of(name, arguments))
    except (UnknownSetting, Ambiguous) as error:
        raise BadKnob(str(error)) from error
    except SettingsRefused as error:
        raise BadKnob("\n".join(error.reasons)) from error
    os.environ.update(job_env(name))
    return flow, parameters


def no_deployment(name: str, known: Collection[str]) -> str:
    """What is said of a profile that a command does not have."""
    flow, _, profile = name.rpartition("/")
    profiles = sorted(other.partition("/")[2] for other in known if other.startswith(f"{flow}/"))
    if not profiles:
        return f"there is no {name}; there are {', '.join(sorted(known))}"
    meant = "".join(f"; was {near} meant?" for near in get_close_matches(profile, profiles, n=1))
    return f"{flow} has no profile {profile}, it has {', '.join(profiles)}{meant}"


def show_failure(console: Console, failure: Failure) -> None:
    console.print()
    for line in failure.lines():
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def show_result(screen: Screen, result: Any) -> None:
    """What a flow returned."""
    console = screen.console
    if isinstance(result, dict) and "served" in result:
        show(console, result, screen.page, os.environ.get("RAY_JOBS_ADDRESS", ""))
    elif isinstance(result, dict) and "checks" in result:
        # The plan alone needs the Kubernetes client.
        from tasks.plan.write import as_markdown

        console.print(as_markdown(result), soft_wrap=True, highlight=False, markup=False)
    elif isinstance(result, dict) and "left" in result:
        console.print(leftovers(result["left"], result["usd_per_h"]), highlight=False)
    elif isinstance(result, dict) and "model_id" in result:
        solved = f"{result['solved']} of {result['num_mazes']} mazes"
        screen.line(f"{result['model_id']} solves {solved}; {result['mlflow']['url']}")
    elif isinstance(result, Record):
        screen.line(result.in_words())
    else:
        screen.line(str(result))


def _show_left(screen: Screen) -> None:
    """What clean-up had found before the run ended badly."""
    if screen.tables.get("left"):
        screen.console.print(leftovers(screen.tables["left"]), highlight=False)
