"""Whether a training job that died is followed by another one: the one place where training is tried again.

Nothing else does it: Prefect repeats neither flows nor stages (tasks/stage.py), and Ray no job of its Jobs API. Where
the next job begins, it finds out itself (rl/grpo/start.py): at the newest whole checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.errors import DoesNotStop, TrainingJobFailed, TrainingStalled
from tasks.jobs.news import training_log
from tasks.jobs.story import JobStory, rays_sentence
from tasks.records import DiedJob
from tasks.run import RunContext

REFUSALS = {
    "CannotStart",
    "CheckpointMismatch",
    "EvalSetMismatch",
    "EvaluationDisagrees",
    "NoModel",
    "NothingToGoOnFrom",
    "OtherTraining",
    "OtherVersion",
    "ValidationError",
}
"""Faults by which the job itself refuses: settings, base model, checkpoints or mazes are not what they have to be."""
REFUSALS_AT_START = {
    "AssertionError",
    "FileNotFoundError",
    "ImportError",
    "ModuleNotFoundError",
    "OSError",
    "PermissionError",
    "TypeError",
    "ValueError",
}
"""Faults that are refusals too where the job has trained no step: SkyRL's and vLLM's of settings, a missing file, a
disk that is full or read-only."""
NO_SUCH_COMMAND = re.compile(r"exit code (126|127)\b")
MAX_CAUSE_CHARS = 240
_OF_ONE_JOB = re.compile(r"[0-9a-f]{8,}|\d+")
"""Numbers of processes, actors and addresses."""


@dataclass(frozen=True)
class AttemptLimits:
    """How often a training is tried."""

    max_attempts: int
    """Jobs, the first one among them."""
    after_stall: bool = True
    """Whether another one follows one that stalled."""


@dataclass(frozen=True)
class Death:
    """How one job ended that was to go on."""

    job: DiedJob
    boundaries: frozenset[str] = frozenset()
    """What its faults that ended it are named after."""
    num_steps: int = 0
    """Steps that it trained itself."""
    was_stopped: bool = False
    """By somebody else."""
    stalled: bool = False
    goes_on: bool = False
    """Although it was told to stop."""


def to_the_end(
    context: RunContext, limits: AttemptLimits, one_job: Callable[[JobStory], object]
) -> tuple[JobStory, list[DiedJob]]:
    """Run job after job until one ends well: its story, and those that died before it.

    Raises TrainingJobFailed or TrainingStalled of the last one, with why none follows it.
    """
    deaths: list[Death] = []
    while True:
        story = JobStory()
        try:
            one_job(story)
            return story, [death.job for death in deaths]
        except (TrainingJobFailed, TrainingStalled) as error:
            deaths.append(death_of(story, error))
            _keep(context, story, deaths[-1].job)
            if why := why_no_other(deaths, limits):
                context.page.warn(f"{deaths[-1].job.submission_id} is not followed by another job: {why}")
                raise type(error)(f"{error}\nnot tried again: {why}") from error
            context.page.warn(
                f"{deaths[-1].job.in_words()}. Job {len(deaths) + 1} of at most {limits.max_attempts} goes "
                "on from the newest whole checkpoint"
            )


def why_no_other(deaths: Sequence[Death], limits: AttemptLimits) -> str:
    """Why none follows the last of these; empty where one does."""
    last = deaths[-1]
    if last.was_stopped:
        return "somebody stopped it"
    if last.goes_on:
        return "it goes on although it was told to stop"
    if last.stalled and not limits.after_stall:
        return "it stalled (job.on_stall is fail)"
    if hopeless := _hopeless(last):
        return f"{hopeless} would end the next one, too"
    if any(_is_same(last, before) for before in deaths[-2:-1]):
        return f"the job before it died of the same at step {last.job.step}, too, and no checkpoint was won in between"
    if len(deaths) >= limits.max_attempts:
        return f"it was job {len(deaths)} of at most {limits.max_attempts} (job.max_training_attempts)"
    return ""


def _hopeless(death: Death) -> str:
    """What cannot get better by itself; empty where it might."""
    named = death.boundaries & (REFUSALS if death.num_steps else REFUSALS | REFUSALS_AT_START)
    if named:
        return ", ".join(sorted(named))
    return "a command that is not there" if NO_SUCH_COMMAND.search(death.job.cause) and not death.boundaries else ""


def _is_same(death: Death, before: Death) -> bool:
    one, other = death.job, before.job
    return (one.step, one.held_step, _OF_ONE_JOB.sub("#", one.cause)) == (
        other.step,
        other.held_step,
        _OF_ONE_JOB.sub("#", other.cause),
    )


def death_of(story: JobStory, error: TrainingJobFailed | TrainingStalled) -> Death:
    """What a job's story and its end say of its death."""
    return Death(
        job=DiedJob(
            submission_id=story.submission_id,
            step=story.last_step,
            held_step=story.held_step,
            cause=_in_one_line(story, error),
        ),
        boundaries=frozenset(fault.boundary for fault in story.fatal),
        num_steps=story.last_step - story.resumed_from_step if story.begun else 0,
        was_stopped=story.end is not None and story.end.status == "STOPPED",
        stalled=isinstance(error, TrainingStalled),
        goes_on=isinstance(error, DoesNotStop),
    )


def _in_one_line(story: JobStory, error: TrainingJobFailed | TrainingStalled) -> str:
    if story.fatal:
        cause = f"{story.fatal[0].boundary}: {story.fatal[0].message}"
    elif story.end is not None:
        cause = rays_sentence(story.end) or f"Ray calls it {story.end.status} and says nothing more"
    else:
        cause = str(error).partition(". ")[0]
    line = " ".join(cause.split())
    return line if len(line) <= MAX_CAUSE_CHARS else f"{line[: MAX_CAUSE_CHARS - 3]}..."


def _keep(context: RunContext, story: JobStory, died: DiedJob) -> None:
    """With the attempt at training that the job was, where it got so far."""
    if story.begun:
        attempt = training_log(context.run, story.attempt)
        attempt.tags({"maze.died": died.in_words()})
        attempt.end("FAILED")
