"""How a run's news reads in a terminal, line by line. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from tasks.training.figures import REWARD, SOLVE_RATE, STEP
from tasks.watch import Ended, Moved, Numbers

MAX_TROUBLES = 8
"""Different warnings and errors of jobs that the screen shows of one run."""
SILENT_S = 1.0
"""A stage that found nothing and took less has no line of its own."""
HARMLESS_ON_CPU = {
    "Triton is installed, but `triton.backends` could not be imported": "it compiles for GPUs; vLLM goes on without",
    "Failed to import the DeepSelect extension": "kernels for GPUs, which vLLM's build for processors does not have",
}
"""Beginnings of warnings that each job of a run without a GPU prints, and why nobody needs them. On a GPU they are
news. The job's log has them either way."""
_LEVEL = re.compile(r"(?<![\w.])(WARNING|WARN|ERROR|CRITICAL|FATAL)(?![\w.])[:\s]")
_RAISED = re.compile(r"^(?:\w+\.)*\w*(Error|Exception)(:|$)")
_NAMED = r"(?:WARNING|WARN|ERROR|CRITICAL|FATAL)"
_PREFIX = re.compile(
    rf"^(?:\([^)]*pid=\d+[^)]*\)\s*)*(?:{_NAMED}[:\s]\s*)?"
    rf"(?:[\d-]+ [\d:.,]+\s*)?(?:- {_NAMED} -\s*)?(?:\[[\w./-]+:\d+\]\s*)?"
)
"""Who printed it, its level, when, and from which line of code."""


def duration(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 4 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, hours = whole // 60, whole // 3600
    if whole < 60:
        return f"{whole} s"
    return f"{minutes} min {whole % 60} s" if hours == 0 else f"{hours} h {minutes % 60} min"


def title(stage: str) -> str:
    """``check_readiness`` -> ``check readiness``."""
    return stage.replace("_", " ")


def subject(stage: str, about: str) -> str:
    """Which of several calls it is: ``evaluate_endpoint``, ``evaluate-tiny:r-step-2`` -> ``tiny:r-step-2``."""
    return about.removeprefix(f"{stage.partition('_')[0]}-")


def stage_line(news: Ended) -> str:
    """A stage that has ended: its name, what it found, how long it took."""
    found = ": ".join(part for part in (subject(news.stage, news.about), news.found) if part)
    return f"{title(news.stage):<26} {found}{', ' if found else ''}{duration(news.took_s)}"


def is_worth_a_line(news: Ended) -> bool:
    """Not a stage that went well, at once, with nothing to say."""
    return news.outcome != "completed" or bool(news.found) or news.took_s >= SILENT_S


@dataclass
class Course:
    """How far the stage under way is."""

    moved: Moved | None = None
    numbers: dict[str, float] = field(default_factory=dict)

    def hear(self, news: Moved | Numbers) -> None:
        if isinstance(news, Numbers):
            self.numbers |= news.values
        else:
            self.moved = news

    @property
    def left_s(self) -> float | None:
        """Seconds to the end at the last step's pace; None where nobody knows."""
        pace_s = self.numbers.get(STEP)
        if self.moved is None or pace_s is None or self.moved.unit != "steps":
            return None
        return pace_s * (self.moved.total - self.moved.done)

    def line(self) -> str:
        """``step 3 of 16: 62% of rollouts solved, reward 0.41, 31 s a step, 6 min 43 s left``."""
        if self.moved is None:
            return ""
        told = self._told()
        words = [told[name] for name in ("solved", "reward", "pace", "left") if name in told]
        return f"{self.where}: {', '.join(words) or self.moved.text}"

    def short(self, room: int, about: str = "") -> str:
        """As much of it as fits into ``room`` characters, what matters most first."""
        told, line = self._told() | {"about": about}, self.where
        for name in ("left", "solved", "pace", "reward", "about"):
            if (text := told.get(name)) and len(f"{line}, {text}") <= room:
                line = f"{line}, {text}"
        return line

    @property
    def where(self) -> str:
        """``step 3 of 16``, ``12 of 64 mazes``."""
        if self.moved is None:
            return ""
        done, total, unit = self.moved.done, self.moved.total, self.moved.unit
        return f"step {done} of {total}" if unit == "steps" else f"{done} of {total} {unit}"

    def _told(self) -> dict[str, str]:
        told = {}
        if (solved := self.numbers.get(SOLVE_RATE)) is not None:
            told["solved"] = f"{solved:.0%} of rollouts solved"
        if (reward := self.numbers.get(REWARD)) is not None:
            told["reward"] = f"reward {reward:.2f}"
        pace_s, left_s = self.numbers.get(STEP), self.left_s
        told |= {"pace": f"{duration(pace_s)} a step"} if pace_s is not None else {}
        return told | ({"left": f"{duration(left_s)} left"} if left_s else {})


class Troubles:
    """Warnings and errors among what jobs print: each once, and not without end."""

    def __init__(self, most: int = MAX_TROUBLES, harmless: Collection[str] = ()) -> None:
        """``harmless``: beginnings of warnings that are none."""
        self._most, self._harmless, self._seen = most, tuple(harmless), set[str]()

    def heard(self, line: str) -> str:
        """What the screen shows of this line; empty where it is no trouble, or no new one."""
        said = _PREFIX.sub("", line).strip()
        found, raised = _LEVEL.search(f"{line} "), _RAISED.match(said)
        if not said or not (found or raised):
            return ""
        if said.startswith(self._harmless):
            return ""
        level = "error" if raised or (found and found[1] in ("ERROR", "CRITICAL", "FATAL")) else "warning"
        return self.once(f"{level} in the job: {said}")

    def once(self, text: str) -> str:
        """The text, unless it was shown before or enough was."""
        kind = re.sub(r"\d+|0x[0-9a-f]+", "#", text)
        if kind in self._seen or len(self._seen) > self._most:
            return ""
        self._seen.add(kind)
        if len(self._seen) > self._most:
            return "more warnings follow; the job's log has them all"
        return text if len(text) <= 300 else f"{text[:297]}..."
