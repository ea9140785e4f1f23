"""What a followed job's events add up to, over several attempts. The sinks record; nothing else is faked."""

from __future__ import annotations

from rl.events import PREFIX, Evaluated, Event, Fault, Metrics, Progress, Resumed, Saved
from tasks.jobs.api import JobState
from tasks.jobs.story import JobStory
from tests.unit.jobs.test_events_and_follow import RecordingSinks, report


def heard(*events: Event) -> tuple[JobStory, RecordingSinks]:
    story, sinks = JobStory(), RecordingSinks()
    for event in events:
        story.hear(PREFIX + event.model_dump_json(), sinks)
    return story, sinks


def export(step: int, sha256: str) -> Saved:
    return Saved(kind="export", step=step, path=f"/{step}", sha256={"w": sha256})


def begins(attempt: int, step: int) -> Resumed:
    return Resumed(attempt=attempt, step=step, path="")


def test_a_step_trained_again_replaces_what_was_known_of_it_and_what_lay_beyond_is_dropped() -> None:
    story, _ = heard(
        begins(1, 0),
        Evaluated(report=report(8, 1)),
        Evaluated(report=report(12, 3)),
        Saved(kind="checkpoint", step=8, path="/8", sha256={}),
        Saved(kind="checkpoint", step=12, path="/12", sha256={}),
        export(8, "a"),
        export(12, "b"),
        Progress(done=13, total=16, text=""),
        begins(2, 8),
    )
    assert (list(story.evaluations), list(story.exports), story.checkpoint_steps) == ([8], [8], {8})
    assert (story.attempt, story.resumed_from_step, story.last_step) == (2, 8, 8)
    sinks = RecordingSinks()
    for event in (Evaluated(report=report(12, 2)), export(12, "c")):
        story.hear(PREFIX + event.model_dump_json(), sinks)
    assert story.evaluations[12].num_solved == 2
    assert story.exports[12].sha256 == {"w": "c"}


def test_the_same_told_twice_by_one_attempt_is_told_to_the_sinks_once() -> None:
    results = (Metrics(step=4, values={"loss": 1.0}), Evaluated(report=report(4, 1)), export(4, "a"))
    once, twice = heard(begins(1, 0), *results)[1].heard, heard(begins(1, 0), *results, *results)[1].heard
    assert once == twice
    again = heard(begins(1, 0), *results, Metrics(step=4, values={"loss": 2.0, "rate": 1.0}))[1].heard
    assert again[len(once) :] == [("metrics", 4, {"loss": 2.0, "rate": 1.0})]


def test_another_attempt_s_curve_begins_with_what_led_to_it_and_nothing_that_it_broke_off() -> None:
    def numbers(step: int, loss: float) -> Metrics:
        return Metrics(step=step, values={"loss": loss})

    _, sinks = heard(
        begins(1, 0), numbers(4, 1.0), Evaluated(report=report(4, 3)), numbers(5, 57.0), begins(2, 4), numbers(5, 20.0)
    )
    own = sinks.heard[sinks.heard.index(("attempt", 2, 4)) :]
    assert own == [
        ("attempt", 2, 4),
        ("inherited", {4: {"loss": 1.0, **report(4, 3).metrics()}}, {4: 3}),
        ("metrics", 5, {"loss": 20.0}),
    ]


def test_the_fault_that_ended_a_job_is_named_and_what_it_survived_is_history() -> None:
    story, _ = heard(
        begins(1, 0),
        Fault(boundary="training", message="memory of the first attempt", fatal=True),
        begins(2, 2),
        Fault(boundary="training", message="step 3: not finite"),
        Progress(done=150, total=160, text=""),
        Fault(boundary="training", message="step 150: out of memory", fatal=True),
        Fault(boundary="OutOfMemory", message="as it left", fatal=True),
    )
    assert story.why_it_ended("j", JobState("FAILED", "")) == (
        "job j is FAILED at step 150; training: step 150: out of memory\n"
        "before that it survived: training: step 3: not finite"
    )


def test_a_job_that_only_survived_faults_ends_with_its_last_lines() -> None:
    story, sinks = heard(begins(1, 0), Fault(boundary="training", message="step 3: not finite"))
    story.hear("Killed", sinks)
    said = story.why_it_ended("j", JobState("FAILED", ""))
    assert said.startswith("job j is FAILED at step 0; it reported no fault that ended it\nits last lines:\nKilled\n")
    assert said.endswith("before that it survived: training: step 3: not finite")


def test_a_killed_job_s_first_line_is_a_sentence_of_its_own() -> None:
    story, sinks = heard(begins(1, 0))
    story.hear("step 3 begins", sinks)
    rays = "Job entrypoint command failed with exit code -9, last available logs (truncated to 20,000 chars):"
    assert story.why_it_ended("j", JobState("FAILED", f"{rays}\nstep 3 begins")).splitlines() == [
        "job j is FAILED at step 0; it reported no fault that ended it, "
        "Ray says: Job entrypoint command failed with exit code -9",
        "its last lines:",
        "step 3 begins",
    ]
