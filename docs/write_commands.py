"""docs/commands.md, from the commands' own help: ``make docs``. A test compares it with them."""

from __future__ import annotations

import re
from inspect import cleandoc
from pathlib import Path
from typing import Any

import typer.main
from typer.cli import get_docs_for_click
from typer.core import TyperGroup

from flows.cli.main import app

SCRIPT = "maze-retrain"
FOLDER = Path(__file__).parent
PAGE, MAKEFILE = FOLDER / "commands.md", FOLDER.parent / "Makefile"
HEAD = """# Commands

Written by `make docs` from the commands' own help. `maze-retrain` lies in `.venv/bin`, which `make setup` makes.
"""


def make_targets(makefile: str) -> dict[str, str]:
    """Target -> what ``make help`` says of it."""
    return dict(re.findall(r"^([a-z-]+):.*?## (.*)$", makefile, re.MULTILINE))


def as_table(head: str, told: dict[str, str]) -> str:
    """Commands, and a line for each."""
    rows = [f"| `{name}` | {text.replace('|', '&#124;')} |" for name, text in told.items()]
    return "\n".join([f"| {head} | what it does |", "|---|---|", *rows])


def terminal() -> TyperGroup:
    """What ``maze-retrain`` understands."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return group


def as_pages(group: TyperGroup) -> str:
    """The help of all commands, then of each."""
    context = group.make_context(SCRIPT, [], resilient_parsing=True)
    summaries, pages = {}, []
    for name, command in group.commands.items():
        summaries[f"{SCRIPT} {name}"] = " ".join(cleandoc(command.help or "").partition("\n\n")[0].split())
        own: Any = command.make_context(name, [], parent=context, resilient_parsing=True)
        page = get_docs_for_click(obj=command, ctx=own, name=name, indent=1, call_prefix=SCRIPT)
        pages.append(re.sub(r"^(#+) `(.+)`$", r"\1 \2", page.strip(), flags=re.MULTILINE))
    text = re.sub(r"\[/?bold\]", "**", cleandoc(group.help or ""))
    return "\n\n".join([text, as_table("command", summaries), *pages])


def current() -> str:
    """The page as the commands have it now."""
    targets = {f"make {name}": text for name, text in make_targets(MAKEFILE.read_text()).items()}
    return f"{HEAD}\n{as_pages(terminal())}\n\n## make\n\n{as_table('target', targets)}\n"


def main() -> None:
    PAGE.write_text(current())
    print(PAGE.relative_to(FOLDER.parent))


if __name__ == "__main__":
    main()
