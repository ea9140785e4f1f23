"""docs/commands.md, from the commands' own help: ``make docs``. A test compares it with them."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE, MAKEFILE = FOLDER / "commands.md", FOLDER.parent / "Makefile"
HEAD = """# Commands

Written by `make docs` from the commands' own help.
"""


def make_targets(makefile: str) -> dict[str, str]:
    """Target -> what ``make help`` says of it."""
    return dict(re.findall(r"^([a-z-]+):.*?## (.*)$", makefile, re.MULTILINE))


def as_table(targets: dict[str, str]) -> str:
    """The targets of the Makefile."""
    rows = [f"| `make {name}` | {text.replace('|', '&#124;')} |" for name, text in targets.items()]
    return "\n".join(["| target | what it does |", "|---|---|", *rows])


def current() -> str:
    """The page as the commands have it now."""
    return f"{HEAD}\n## make\n\n{as_table(make_targets(MAKEFILE.read_text()))}\n"


def main() -> None:
    PAGE.write_text(current())
    print(PAGE.relative_to(FOLDER.parent))


if __name__ == "__main__":
    main()
