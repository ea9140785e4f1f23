"""Where an attempt at training starts, and what it tells of those before it."""

from __future__ import annotations

from rl.events import EventLog, Fault, Progress, Resumed, Saved, Told, marked_over
from rl.grpo.checkpoints import Checkpoint, Found, find_checkpoint, set_aside, step_folders
from rl.grpo.config_table import RunDirs
from rl.grpo.settings import TrainJob


class OtherTraining(RuntimeError):
    """The folder has checkpoints of a training with other settings."""


class NothingToGoOnFrom(RuntimeError):
    """Checkpoints are there, none is whole, and nobody asked for a restart."""


def keep_order(job: TrainJob, dirs: RunDirs) -> None:
    """Write down what this folder's checkpoints are trained with.

    Raises OtherTraining where those that are there were trained with something else.
    """
    if dirs.order.is_file() and step_folders(dirs.checkpoints):
        try:
            job.adds_steps_to(dirs.order.read_text())
        except ValueError as error:
            raise OtherTraining(f"{dirs.checkpoints}: {error}") from error
    dirs.root.mkdir(parents=True, exist_ok=True)
    unfinished = dirs.order.with_suffix(".part")
    unfinished.write_text(job.model_dump_json(indent=1))
    unfinished.rename(dirs.order)


def is_finished(job: TrainJob, told: Told) -> bool:
    """Whether earlier attempts evaluated, saved and exported the last step."""
    return {"evaluated", "checkpoint", "export"} <= told.kinds_of(job.train.grpo.max_steps)


def tell_the_end_again(job: TrainJob, log: EventLog, told: Told) -> None:
    """Trained to the end by a job that this cluster no longer remembers."""
    last = job.train.grpo.max_steps
    # Steps beyond the last one asked for are of no training that is wanted now.
    story = told.whole if told.last_step <= last else told.up_to(last).events
    log.retell(marked_over(story, told.num_attempts - 1))
    log.emit(Progress(done=last, total=last, text="this run had ended before"))


def begin_attempt(job: TrainJob, dirs: RunDirs, log: EventLog, told: Told) -> Checkpoint | None:
    """Choose the checkpoint, tell all that was told before and what is passed over; None to start from the base model.

    Raises CheckpointMismatch, and NothingToGoOnFrom before anything is changed.
    """
    found = find_checkpoint(dirs.checkpoints, job.train.num_policy_gpus)
    if found.checkpoint is None and found.passed_over and not job.train.restart:
        raise NothingToGoOnFrom(
            f"{'; '.join(map(str, found.passed_over))}. Bring one of them back, or start again from the base model: "
            "train.restart=true"
        )
    set_aside(found.passed_over)
    checkpoint = found.checkpoint
    step, path = (checkpoint.step, str(checkpoint.path)) if checkpoint else (0, "")
    before = told.up_to(step)
    log.retell(marked_over(told.whole, told.num_attempts))
    log.emit(Resumed(attempt=told.num_attempts + 1, step=step, path=path))
    _tell_losses(log, told, found)
    if checkpoint and "checkpoint" not in before.kinds_of(step):
        log.emit(Saved(kind="checkpoint", step=step, path=path, sha256={}))
    return checkpoint


def _tell_losses(log: EventLog, told: Told, found: Found) -> None:
    for entry in found.passed_over:
        log.emit(Fault(boundary="checkpoint", message=f"{entry}; it was set aside"))
    if found.checkpoint is None and told.last_step > 0:
        log.emit(
            Fault(boundary="checkpoint", message=f"no checkpoint: steps 1 to {told.last_step} are trained once more")
        )
    if told.left_out:
        log.emit(Fault(boundary="events", message=told.left_out))
