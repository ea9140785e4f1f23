"""The project's pages, and what can be checked in them: commands, links, names in backticks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
PAGES = tuple(sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")]))
SHELL = ("sh", "bash", "console", "shell")
OURS = re.compile(r"(make|maze-retrain|python|prefect deploy|\.venv[a-z-]*/bin/\S+)(\s|$)")
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Found:
    """Something that a page says."""

    page: Path
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(PROJECT)}: {self.text}"


def without_fences(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


def spans(pages: tuple[Path, ...] = PAGES) -> Iterator[Found]:
    """What stands in backticks."""
    for page in pages:
        yield from (Found(page, text) for text in _SPAN.findall(without_fences(page)))


def links(pages: tuple[Path, ...] = PAGES) -> Iterator[Found]:
    """Targets of links and pictures."""
    for page in pages:
        yield from (Found(page, target) for target in _LINK.findall(without_fences(page)))


def commands(pages: tuple[Path, ...] = PAGES) -> Iterator[Found]:
    """Commands of ours: lines of shell blocks, and spans that begin like one."""
    for page in pages:
        for language, body in _FENCE.findall(page.read_text()):
            if language in SHELL:
                lines = body.replace("\\\n", " ").splitlines()
                yield from (Found(page, line.strip()) for line in lines if OURS.match(line.strip()))
    yield from (found for found in spans(pages) if OURS.match(found.text))


def words(command: Found) -> list[str]:
    """Its words as a shell splits them, comment left out."""
    return shlex.split(command.text, comments=True)


def anchors(page: Path) -> set[str]:
    """What a link's ``#`` may name, as GitHub and Python-Markdown make it of headings without punctuation."""
    headings = re.findall(r"^#+ (.+)$", without_fences(page), re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}
