"""What the pages tell people to type exists."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from typer.exceptions import TyperException

from docs.write_commands import MAKEFILE, PAGE, SCRIPT, current, make_targets, terminal
from flows.deployments import PREFECT_YAML, load_deployment
from tests.unit.docs.pages import PAGES, PROJECT, Found, commands, words

MAKE = MAKEFILE.read_text()
TOP_FOLDERS = {path.name for path in PROJECT.iterdir() if path.is_dir()}


def wrong_in_make(command: Found) -> list[str]:
    """Targets and variables of a ``make`` that the Makefile does not have."""
    known, wrong = make_targets(MAKE), []
    for word in words(command)[1:]:
        name, is_variable, _ = word.partition("=")
        if is_variable and f"$({name})" not in MAKE and f"$${name}" not in MAKE:
            wrong.append(f"{name} is no variable of the Makefile")
        if not is_variable and not name.startswith("-") and name not in known:
            wrong.append(f"make has no target {name}")
    return wrong


def wrong_in_python(command: Found) -> list[str]:
    """Modules of this project, and paths, that are not there."""
    given = words(command)
    modules = [name for flag, name in pairwise(given) if flag == "-m"]
    wrong = [f"there is no module {name}" for name in modules if not is_module(name)]
    paths = [word for word in given[1:] if "/" in word and word.split("/")[0] in TOP_FOLDERS]
    return wrong + [f"there is no {path}" for path in paths if not (PROJECT / path).exists()]


def is_module(name: str) -> bool:
    place = PROJECT / name.replace(".", "/")
    ours = name.split(".")[0] in TOP_FOLDERS
    return not ours or place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()


def wrong_in_terminal(command: Found) -> str:
    """Why ``maze-retrain`` does not understand it; empty where it does."""
    group, (_, *given) = terminal(), words(command)
    context = group.make_context(SCRIPT, [], resilient_parsing=True)
    if not given or given == [name for name in group.commands if name == given[0]]:
        # Named, not typed: what it must be given is said elsewhere.
        return ""
    if (named := group.get_command(context, given[0])) is None:
        return f"there is no command {given[0]}"
    try:
        named.make_context(given[0], given[1:], parent=context)
    except TyperException as error:
        return str(error)
    return ""


def test_every_make_target_that_a_page_names_is_there() -> None:
    told = [command for command in commands() if words(command)[0] == "make"]
    assert len(told) > 20
    assert not [f"{command}: {wrong}" for command in told for wrong in wrong_in_make(command)]


def test_the_terminal_understands_every_command_that_a_page_names() -> None:
    told = [command for command in commands() if words(command)[0] == SCRIPT]
    assert len(told) > 5
    assert not [f"{command}: {wrong}" for command in told if (wrong := wrong_in_terminal(command))]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("maze-retrain promenade", "there is no command promenade"),
        ("maze-retrain cleanup my-run --removed", "No such option"),
        ("maze-retrain cleanup my-run --remove", ""),
    ],
)
def test_a_command_that_the_terminal_refuses_would_be_found(text: str, wrong: str) -> None:
    found = wrong_in_terminal(Found(PAGES[0], text))
    assert wrong in found
    assert bool(found) == bool(wrong)


def knobs(command: Found) -> dict[str, object]:
    """The ``key=value`` of a run, typed in the terminal or handed on by make."""
    given = words(command)
    if given[:2] == ["make", "run"]:
        turned = [part for word in given if word.startswith("SET=") for part in shlex.split(word.removeprefix("SET="))]
    else:
        turned = [word for word in given if "=" in word] if given[:2] == [SCRIPT, "run"] else []
    pairs = [part.partition("=") for part in turned]
    return {name: yaml.safe_load(value) for name, _, value in pairs}


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What prefect.yaml leaves to the environment; nobody is asked."""
    for name in set(re.findall(r"\{\{ \$(\w+) \}\}", PREFECT_YAML.read_text())):
        monkeypatch.setenv(name, "127.0.0.1:1" if name == "SERVE_LISTEN" else "http://127.0.0.1:1")
    monkeypatch.setenv("PROJECT_DIR", str(PROJECT))


@pytest.mark.usefixtures("addresses")
def test_every_knob_that_a_page_turns_is_one_that_a_run_takes() -> None:
    told = [(command, knobs(command)) for command in commands() if knobs(command)]
    assert len(told) > 3
    for command, turned in told:
        try:
            load_deployment("retrain/local", turned)
        except ValueError as error:
            pytest.fail(f"{command}: {error}")


@pytest.mark.usefixtures("addresses")
@pytest.mark.parametrize("turned", [{"max_stepps": 4}, {"platform.train.engine.no_such": 1}, {"max_steps": "many"}])
def test_a_knob_that_a_run_refuses_would_be_found(turned: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(turned)).rpartition(".")[2]):
        load_deployment("retrain/local", turned)


def test_every_module_that_a_page_runs_is_there() -> None:
    told = [command for command in commands() if "python" in words(command)[0]]
    assert told
    assert not [f"{command}: {wrong}" for command in told for wrong in wrong_in_python(command)]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("make runn", "make has no target runn"),
        ("make run STE='max_steps=4'", "STE is no variable of the Makefile"),
        ("make cleanup RUN=x  # a comment", ""),
    ],
)
def test_a_make_that_does_not_exist_would_be_found(text: str, wrong: str) -> None:
    assert wrong_in_make(Found(PAGES[0], text)) == ([wrong] if wrong else [])


def test_a_module_that_does_not_exist_would_be_found() -> None:
    assert wrong_in_python(Found(PAGES[0], "python -m rl.grpo.jobs")) == ["there is no module rl.grpo.jobs"]
    assert wrong_in_python(Found(PAGES[0], "python -m pytest tests/unit/nowhere")) == ["there is no tests/unit/nowhere"]


def test_commands_are_read_from_blocks_and_from_spans(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        'say `make up` and\n\n```sh\nmake run \\\n  SET="max_steps=4"  # short\n```\n\n```text\nmake it\n```\n'
    )
    assert [words(command) for command in commands((page,))] == [["make", "run", "SET=max_steps=4"], ["make", "up"]]


def test_the_page_of_commands_is_their_help() -> None:
    assert PAGE.read_text() == current(), "commands have changed: make docs writes their page anew"


def test_what_ci_runs_stands_in_the_readme() -> None:
    (ci,) = re.findall(r"^exec (make \w+)$", (PROJECT / ".ci" / "run").read_text(), re.MULTILINE)
    assert ci in [" ".join(words(command)) for command in commands((PROJECT / "README.md",))]


def test_what_runs_before_a_commit_is_what_make_check_runs() -> None:
    configured = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text())
    (hook,) = (hook for repository in configured["repos"] for hook in repository["hooks"])
    assert hook["entry"].split()[0] == "make"
    assert hook["entry"].split()[-1] == "check"
    assert (hook["language"], hook["always_run"], hook["pass_filenames"]) == ("system", True, False)
