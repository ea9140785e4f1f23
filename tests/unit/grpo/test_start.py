"""What an attempt takes up and tells: real folders, a real events.jsonl, nothing is faked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.deployments import load_settings
from rl.events import (
    Completed,
    Evaluated,
    Event,
    EventLog,
    Fault,
    Metrics,
    Progress,
    Resumed,
    Saved,
    marked_over,
    parse_line,
)
from rl.grpo.config_table import RunDirs
from rl.grpo.job import run
from rl.grpo.settings import TrainJob
from rl.grpo.start import NothingToGoOnFrom, OtherTraining, begin_attempt, is_finished, keep_order
from rl.maze.run_mazes import prepare_mazes
from rl.maze.score import EvalReport, Outcome
from tests.unit.grpo.folders import write_checkpoint
from tests.unit.samples import RULES


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainJob:
    monkeypatch.setenv("PROJECT_DIR", str(Path.cwd()))
    for name in ("RAY_JOBS_ADDRESS", "MLFLOW_TRACKING_URI", "SERVE_DASHBOARD", "SERVE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("SERVE_LISTEN", "127.0.0.1:4")
    changes = {"platform.train.shared_dir": str(tmp_path), "platform.train.data.num_train_mazes": 8}
    train = load_settings("retrain/local", changes).train
    return TrainJob(run_name="r", train=train, train_mazes_sha256=prepare_mazes(train.data).train_sha256)


def evaluated(step: int, text: str = "m") -> Evaluated:
    outcome = Outcome(seed=1, solved=True, actions="s", unparsable_replies=0)
    return Evaluated(report=EvalReport(step=step, rules=RULES, model_id=text, outcomes=(outcome,)))


def saved(kind: Any, step: int) -> Saved:
    return Saved(kind=kind, step=step, path=f"/{step}", sha256={})


def told(capsys: pytest.CaptureFixture[str]) -> list[Event]:
    return [event for line in capsys.readouterr().out.split("\n") if (event := parse_line(line))]


def attempt(job: TrainJob, *events: Event) -> EventLog:
    """The log of a run of which these were told."""
    log = EventLog(RunDirs(job.train.shared_dir, job.run_name).events)
    for event in events:
        log.emit(event)
    return log


def begin(job: TrainJob, log: EventLog) -> int | None:
    checkpoint = begin_attempt(job, RunDirs(job.train.shared_dir, job.run_name), log, log.earlier())
    return checkpoint.step if checkpoint else None


def checkpoint_folder(job: TrainJob) -> Path:
    return RunDirs(job.train.shared_dir, job.run_name).checkpoints


FIRST: list[Event] = [
    Resumed(attempt=1, step=0, path=""),
    evaluated(0),
    *(Metrics(step=step, values={"reward": float(step)}) for step in range(1, 12)),
    saved("checkpoint", 12),
    saved("export", 12),
    evaluated(12),
    Metrics(step=12, values={"reward": 12.0}),
    Fault(boundary="training", message="survived at 12"),
    Metrics(step=13, values={"reward": 13.0}),
    saved("export", 13),
    Fault(boundary="training", message="survived at 13"),
]


def test_everything_is_told_again_also_what_lies_beyond_the_checkpoint_and_no_progress(
    job: TrainJob, capsys: pytest.CaptureFixture[str]
) -> None:
    log = attempt(job, *FIRST, Progress(done=13, total=16, text=""))
    write_checkpoint(checkpoint_folder(job), 12, 1)
    capsys.readouterr()
    assert begin(job, log) == 12
    heard = told(capsys)
    assert heard[:-1] == [Resumed(attempt=1, step=0, path="", is_over=True), *FIRST[1:]]
    assert heard[-1] == Resumed(attempt=2, step=12, path=str(checkpoint_folder(job) / "global_step_12"))


def test_a_third_attempt_tells_all_that_each_attempt_told_in_order(
    job: TrainJob, capsys: pytest.CaptureFixture[str]
) -> None:
    second = [
        Resumed(attempt=2, step=12, path="/12", is_over=True),
        Metrics(step=13, values={"reward": 99.0}),
        saved("export", 16),
    ]
    rest = [saved("checkpoint", 16), Metrics(step=17, values={}), Completed()]
    log = attempt(job, *FIRST, second[0].model_copy(update={"is_over": False}), *second[1:], *rest)
    write_checkpoint(checkpoint_folder(job), 16, 1)
    capsys.readouterr()
    assert begin(job, log) == 16
    assert told(capsys)[:-1] == [*marked_over(FIRST, 1), *second, *rest]
    assert log.earlier().num_attempts == 3


def test_a_checkpoint_that_was_marked_and_never_told_is_told(job: TrainJob, capsys: pytest.CaptureFixture[str]) -> None:
    log = attempt(job, *FIRST[:3])
    write_checkpoint(checkpoint_folder(job), 4, 1)
    capsys.readouterr()
    assert begin(job, log) == 4
    assert [(event.kind, event.step) for event in told(capsys) if isinstance(event, Resumed | Saved)] == [
        ("resumed", 0),
        ("resumed", 4),
        ("checkpoint", 4),
    ]


@pytest.mark.parametrize(
    ("tail", "kept", "left_out"),
    [
        (b'{"kind":"metrics","step":12,"val', False, True),
        (b'{"kind":"metrics","step":12,"values":{"x":1.0}}', True, False),
        (b'{"kind":"metrics","step":12,"values":{"\xff":1.0}}\n', False, True),
        ('{"kind":"metrics","step":12,"values":{"a\u2028b\u0085c":1.0}}\n'.encode(), True, False),
        (b"not an event\n", False, True),
        (b"\0" * 8, False, True),
    ],
)
def test_a_torn_events_file_is_gone_on_from_and_one_line_says_what_was_left_out(
    job: TrainJob, capsys: pytest.CaptureFixture[str], tail: bytes, kept: bool, left_out: bool
) -> None:
    log = attempt(job, *FIRST[:2])
    file = RunDirs(job.train.shared_dir, job.run_name).events
    with file.open("ab") as opened:
        opened.write(tail)
    write_checkpoint(checkpoint_folder(job), 12, 1)
    capsys.readouterr()
    assert begin(job, log) == 12
    heard = told(capsys)
    assert any(isinstance(event, Metrics) for event in heard) is kept
    faults = [event.message for event in heard if isinstance(event, Fault)]
    assert faults == ([f"{file}: left out as no event: line 3 ({len(tail.strip())} bytes)"] if left_out else [])
    # Nothing was written behind it: every later attempt reads the same.
    log.emit(evaluated(12))
    assert evaluated(12) in EventLog(file).earlier().events
    assert begin(job, log) == 12
    assert bool(EventLog(file).earlier().left_out) is left_out


def test_all_checkpoints_broken_is_refused_unless_a_restart_is_asked_for(
    job: TrainJob, capsys: pytest.CaptureFixture[str]
) -> None:
    log = attempt(job, *FIRST)
    folder = checkpoint_folder(job)
    for step in (4, 12):
        (write_checkpoint(folder, step, 1) / "trainer_state.pt").write_bytes(b"")
    for _ in range(2):
        with pytest.raises(NothingToGoOnFrom) as refused:
            begin(job, log)
        assert "global_step_12 is passed over: trainer_state.pt has 0 bytes, 40 were written" in str(refused.value)
        assert "global_step_4 is passed over" in str(refused.value)
        assert "train.restart=true" in str(refused.value)
    capsys.readouterr()
    asked = job.model_copy(update={"train": job.train.model_copy(update={"restart": True})})
    assert begin(asked, log) is None
    heard = told(capsys)
    assert heard[: len(FIRST) + 1] == [*marked_over(FIRST, 1), Resumed(attempt=2, step=0, path="")]
    assert len([event for event in heard[len(FIRST) :] if isinstance(event, Fault)]) == 3


def test_the_newest_passed_over_is_named_and_an_older_one_is_taken(
    job: TrainJob, capsys: pytest.CaptureFixture[str]
) -> None:
    write_checkpoint(checkpoint_folder(job), 60, 1)
    shard = write_checkpoint(checkpoint_folder(job), 80, 1) / "policy/model_world_size_1_rank_0.pt"
    shard.write_bytes(b"x" * 10)
    assert begin(job, attempt(job)) == 60
    (fault,) = [event for event in told(capsys) if isinstance(event, Fault)]
    assert not fault.fatal
    assert fault.message.endswith("model_world_size_1_rank_0.pt has 10 bytes, 40 were written; it was set aside")


def test_starting_over_without_any_checkpoint_is_told(job: TrainJob, capsys: pytest.CaptureFixture[str]) -> None:
    log = attempt(job, *FIRST[:5])
    capsys.readouterr()
    assert begin(job, log) is None
    assert told(capsys)[-1] == Fault(boundary="checkpoint", message="no checkpoint: steps 1 to 3 are trained once more")


def test_a_run_that_had_ended_tells_its_story_again_and_trains_nothing(
    job: TrainJob, capsys: pytest.CaptureFixture[str]
) -> None:
    last = job.train.grpo.max_steps
    story: list[Event] = [
        Resumed(attempt=1, step=0, path=""),
        evaluated(0),
        Resumed(attempt=2, step=0, path=""),
        saved("checkpoint", last),
        evaluated(last),
        saved("export", last),
    ]
    log = attempt(job, *story[:-1])
    assert not is_finished(job, log.earlier()), "the export is missing"
    log.emit(story[-1])
    capsys.readouterr()
    run(job, log)
    assert told(capsys) == [*marked_over(story, 1), Progress(done=last, total=last, text="this run had ended before")]


def test_a_restart_is_no_other_training(job: TrainJob) -> None:
    asked = job.model_copy(update={"train": job.train.model_copy(update={"restart": True})})
    assert asked.adds_steps_to(job.model_dump_json()) == 0


def test_a_folder_s_checkpoints_are_gone_on_with_by_the_same_training_or_a_longer_one_and_by_no_other(
    job: TrainJob,
) -> None:
    def changed(**grpo: Any) -> TrainJob:
        document = job.model_dump()
        document["train"]["grpo"] |= grpo
        return TrainJob.model_validate(document)

    dirs = RunDirs(job.train.shared_dir, job.run_name)
    keep_order(job, dirs)
    keep_order(changed(seed=7), dirs)
    keep_order(job, dirs)
    write_checkpoint(dirs.checkpoints, 4, 1)
    keep_order(job, dirs)
    longer = changed(max_steps=job.train.grpo.max_steps + 4)
    keep_order(longer, dirs)
    for other in (changed(seed=7), changed(max_steps=longer.train.grpo.max_steps, learning_rate=0.5), job):
        with pytest.raises(OtherTraining, match=r"train\.grpo\.(seed|learning_rate|max_steps) is "):
            keep_order(other, dirs)
    assert TrainJob.model_validate_json(dirs.order.read_text()) == longer
