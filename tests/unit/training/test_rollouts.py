"""Episodes of training in MLflow: one table of steps that hold, of bounded length."""

from __future__ import annotations

from rl.events import PREFIX, Event, Resumed, Rollout, Rollouts, Saved
from rl.maze.score import Said
from tasks.jobs.story import JobStory
from tasks.training.news import TrainingNews
from tasks.training.rollouts import MAX_STEPS, TABLE, rollout_rows, spread
from tasks.training.train import trained_run
from tests.recorded_run import recorded_order
from tests.recording import RecordingLog, recording
from tests.unit.samples import MAZES, walk

DATA = recorded_order().train.data


def told(step: int, reward: float = 1.0) -> Rollouts:
    episodes = (walk(3, True), walk(3, False).model_copy(update={"said": (Said(turn=4, reply="I stop <b>here</b>"),)}))
    return Rollouts(step=step, rollouts=tuple(Rollout(outcome=one, reward=reward, advantage=0.5) for one in episodes))


def heard(*events: Event) -> tuple[RecordingLog, JobStory]:
    context, _ = recording()
    news, story = TrainingNews(context, recorded_order()), JobStory()
    for event in events:
        story.hear(PREFIX + event.model_dump_json(), news)
    news.finished()
    assert isinstance(context.run, RecordingLog)
    return context.run, story


def checkpoint(step: int) -> Saved:
    return Saved(kind="checkpoint", step=step, path=f"/{step}", sha256={})


def test_an_episode_is_a_row_with_its_replies_reward_and_advantage() -> None:
    won, lost = rollout_rows([told(4)], DATA)
    assert (won["step"], won["seed"], won["ending"], won["reward"], won["advantage"]) == (4, 3, "solved", 1.0, 0.5)
    assert won["turns"] == won["turns_needed"] == len(won["walk"])
    assert lost["ending"] == "stopped elsewhere"
    assert lost["replies"].splitlines()[-1] == "5: I stop <b>here</b>"


def test_what_an_attempt_told_beyond_its_last_checkpoint_is_another_s_to_tell() -> None:
    begins = [Resumed(attempt=number, step=step, path="") for number, step in ((1, 0), (2, 4))]
    run, story = heard(
        begins[0], told(4, 0.0), checkpoint(4), told(5, 0.25), told(6, 0.25), begins[1], told(5, 0.75), checkpoint(5)
    )
    assert [(row["step"], row["reward"]) for row in run.tables[TABLE]] == [(4, 0.0)] * 2 + [(5, 0.75)] * 2
    assert {step: sample.rollouts[0].reward for step, sample in story.rollouts.items()} == {4: 0.0, 5: 0.75}
    record = trained_run(recorded_order(), MAZES, story)
    assert [sample.step for sample in record.rollouts] == [4, 5]


def test_a_table_is_told_when_a_checkpoint_holds_its_steps_and_at_the_end() -> None:
    run, _ = heard(Resumed(attempt=1, step=0, path=""), told(1), told(2), checkpoint(2), told(3))
    assert run.events.count(f"table {TABLE}") == 2
    assert {row["step"] for row in run.tables[TABLE]} == {1, 2}, "no checkpoint holds step 3"


def test_a_long_run_s_table_has_steps_from_end_to_end_and_no_more_rows_than_a_short_one_s() -> None:
    for number in (1, MAX_STEPS, MAX_STEPS + 1, 160, 5000):
        steps = spread(range(1, number + 1))
        assert (steps[0], steps[-1], len(steps)) == (1, number, min(number, MAX_STEPS))
        assert sorted(set(steps)) == steps
