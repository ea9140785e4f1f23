"""How a command that failed reads: where, why in one line, what to do, where the log is."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.errors import StageError

DONE, FAILED, BAD_INPUT, NOT_RUNNING = 0, 1, 2, 3
"""Exit codes, as ``maze-retrain --help`` lists them; a run that was told to end has another (interrupt.py)."""
MAX_CHARS = 400


@dataclass(frozen=True)
class Failure:
    """The end of a run that failed."""

    stage: str
    """Empty where none had begun."""
    cause: str
    """In one line."""
    todo: str
    log: str
    """File or address; empty where there is none."""
    more: tuple[str, ...] = ()
    """Further causes of the same kind, each a line."""

    def lines(self) -> list[str]:
        rows = [("stage", self.stage), ("cause", self.cause), *(("", text) for text in self.more)]
        rows += [("do", self.todo), ("log", self.log)]
        return [f"{name:<8}{text}" for name, text in rows if text]


def failure_of(error: BaseException, stage: str, log: str) -> Failure:
    """What the error says. Errors of this project say what is, what was wanted and, behind a semicolon, what to do."""
    first, *others = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    bullets = tuple(line.removeprefix("- ") for line in others if line.startswith("- "))
    if not isinstance(error, StageError):
        return Failure(stage, _short(f"{type(error).__name__}: {first}"), _by_kind(error), log)
    if bullets:
        cause, *more = bullets
        return Failure(stage, *_split(cause, error), log, tuple(map(_short, more)))
    return Failure(stage, *_split(first, error), log)


def _split(text: str, error: StageError) -> tuple[str, str]:
    """What is, and what to do."""
    if error.todo:
        return _short(text), error.todo
    cause, sign, todo = text.rpartition("; ")
    return (_short(cause), _short(todo)) if sign else (_short(text), _by_kind(error))


def _by_kind(error: BaseException) -> str:
    more = "VERBOSE=1 maze-retrain ... shows where it comes from"
    return "" if isinstance(error, KeyboardInterrupt) else more


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 3]}..."
