"""The page of episodes of training: all that was kept, as it was kept, a step and a behaviour at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from rl.events import Rollout, Rollouts
from rl.maze.grid import generate_maze
from rl.maze.score import Said
from rl.maze.walks import Turn, ending_of, turns_of
from tasks.evidence import rollout_replays
from tasks.evidence.rollout_replays import MAX_BYTES, rollout_page
from tests.unit.evidence.offline_browser import TURN_MS, opened
from tests.unit.evidence.replay_samples import GAME, ODD_REPLIES, training_step

pytestmark = pytest.mark.slow_s(20)

SAMPLES = [training_step(step, 0.6 + 0.02 * step) for step in (1, 2, 4, 8, 16)]
FILTERS = ("all", "solved", "elsewhere", "late", "cut", "back", "bump", "unread")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    path = tmp_path_factory.mktemp("page") / "rollouts.html"
    path.write_text(rollout_page("r <b>1</b>", GAME, SAMPLES), encoding="utf-8")
    with opened(path) as page:
        yield page


def turns(rollout: Rollout) -> tuple[Turn, ...]:
    return turns_of(generate_maze(rollout.outcome.seed, 7, 9), rollout.outcome)


def belongs(name: str, rollout: Rollout) -> bool:
    ending = str(ending_of(rollout.outcome, GAME.max_turns))
    did = {
        "back": any(turn.turned_back for turn in turns(rollout)),
        "bump": any(turn.hit_wall for turn in turns(rollout)),
        "unread": any(turn.letter == "?" for turn in turns(rollout)),
    }
    endings = {"solved": "solved", "elsewhere": "stopped elsewhere", "late": "ran out of turns", "cut": "cut off"}
    return name == "all" or did.get(name, False) or endings.get(name) == ending


def shown(page: Page) -> list[list[str]]:
    """How each episode that is shown ended, and what it earned."""
    return page.eval_on_selector_all(
        ".maze",
        "cards => cards.map(card => ['.how', '.earned'].map(part => card.querySelector(part).textContent))",
    )


def wanted(rollouts: list[Rollout]) -> list[list[str]]:
    return [
        [
            f"{ending_of(one.outcome, GAME.max_turns)}, {one.outcome.num_turns} turns".replace(" 1 turns", " 1 turn"),
            f"reward {one.reward:g}, advantage {round(one.advantage or 0, 3):g}",
        ]
        for one in rollouts
    ]


@pytest.mark.parametrize("at", [-1, 0, 2, 4])
def test_filters_show_the_episodes_of_a_step_that_did_so(page: Page, at: int) -> None:
    page.select_option("#step", label="all" if at < 0 else str(SAMPLES[at].step))
    chosen = SAMPLES if at < 0 else [SAMPLES[at]]
    for name in FILTERS:
        page.click(f"[data-filter={name}]")
        found = [one for sample in chosen for one in sample.rollouts if belongs(name, one)]
        assert page.inner_text(f"[data-filter={name}]").endswith(f": {len(found)}")
        assert shown(page) == wanted(found)
        assert page.is_visible("#none") == (not found)


def test_some_episodes_are_of_each_kind() -> None:
    rollouts = [one for sample in SAMPLES for one in sample.rollouts]
    assert {name for name in FILTERS if any(belongs(name, one) for one in rollouts)} == {*FILTERS} - {"cut"}


def test_an_episode_is_played_turn_by_turn_with_what_was_said(page: Page) -> None:
    page.select_option("#step", label="1")
    page.click("[data-filter=unread]")
    rollout = next(one for one in SAMPLES[0].rollouts if belongs("unread", one))
    page.click(".maze")
    assert page.inner_text("#player-title").startswith(f"Step 1, seed {rollout.outcome.seed}, episode ")
    for count, turn in enumerate(turns(rollout), 1):
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#turn") == f"turn {count} of {rollout.outcome.num_turns}"
        told = [
            page.eval_on_selector(f"#boards [data-what={what}]", "node => node.textContent")
            for what in ("reply", "answer")
        ]
        assert told == [turn.reply, turn.feedback]
    assert page.inner_text("#boards .how") == wanted([rollout])[0][0]
    assert wanted([rollout])[0][1] in page.inner_text("#boards .who")
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    page.clock.run_for(100 * TURN_MS)
    assert page.inner_text("#turn") == f"turn {rollout.outcome.num_turns} of {rollout.outcome.num_turns}"
    page.keyboard.press("n")
    assert page.inner_text("#turn").startswith("turn 0 of")
    page.keyboard.press("Escape")


def test_the_episodes_of_a_maze_play_beside_each_other(page: Page) -> None:
    page.select_option("#step", label="1")
    page.click("[data-filter=all]")
    page.click("#groups section:first-child .group button")
    group = [one for one in SAMPLES[0].rollouts if one.outcome.seed == SAMPLES[0].rollouts[0].outcome.seed]
    page.keyboard.press("End")
    assert page.eval_on_selector_all("#boards .how", "nodes => nodes.map(node => node.textContent)") == [
        ended for ended, _ in wanted(group)
    ]
    page.keyboard.press("Escape")


def test_a_step_is_followed_by_the_next_and_the_last_by_none(page: Page) -> None:
    page.select_option("#step", label="1")
    for sample in SAMPLES[1:]:
        page.click("#step-after")
        assert {*page.eval_on_selector_all("#groups section", "nodes => nodes.map(node => node.dataset.step)")} == {
            str(sample.step)
        }
    assert page.is_disabled("#step-after")


def test_a_reply_that_holds_markup_stays_text_and_a_phone_scrolls_in_one_direction(page: Page) -> None:
    said = [one.reply for sample in SAMPLES for rollout in sample.rollouts for one in rollout.outcome.said or ()]
    assert ODD_REPLIES[0] in said
    assert page.title() == "r <b>1</b>: rollouts"
    assert page.eval_on_selector_all("img, #title b, dd script", "nodes => nodes.length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def long_run(chatter: str) -> list[Rollouts]:
    """As many steps, episodes and words as a run keeps."""
    steps = [training_step(step, 0.8, num_mazes=2, num_rollouts=16) for step in range(1, 5)]

    def talking(rollout: Rollout, step: int, number: int) -> Rollout:
        said = (Said(turn=0, reply=f"{step} {number} {chatter}"),)
        return rollout.model_copy(update={"outcome": rollout.outcome.model_copy(update={"said": said})})

    return [
        Rollouts(
            step=step,
            rollouts=tuple(talking(one, step, number) for number, one in enumerate(steps[step % 4].rollouts)),
        )
        for step in range(1, 65)
    ]


@pytest.mark.parametrize(
    ("chatter", "max_bytes"),
    [("because the wall is there " * 19, MAX_BYTES), ("\u4e16" * 500, MAX_BYTES), ("", 150_000)],
)
def test_the_page_is_small_however_much_a_model_talks_and_walks(
    monkeypatch: pytest.MonkeyPatch, chatter: str, max_bytes: int
) -> None:
    monkeypatch.setattr(rollout_replays, "MAX_BYTES", max_bytes)
    samples = long_run(chatter)
    assert sum(len(one.outcome.said[0].reply or "") for one in samples[0].rollouts if one.outcome.said) < 16_600
    page = rollout_page("r", GAME, samples)
    assert max_bytes / 3 < len(page.encode()) <= max_bytes
    num_steps = page.count('"step":')
    assert num_steps == (64 if max_bytes == MAX_BYTES else 16)
    assert f"Episodes of {num_steps} steps" in page
