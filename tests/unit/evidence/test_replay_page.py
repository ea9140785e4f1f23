"""The replay page in a browser: every maze as it was recorded, words as words, nothing from the net."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import Page

from rl.maze.grid import generate_maze
from rl.maze.pictures import render
from rl.maze.score import EvalReport, Said
from rl.maze.walks import ending_of, turns_of
from tasks.evidence.replays import Player, behaviour_of, behaviour_row, replay_page
from tests.unit.evidence.offline_browser import TURN_MS, opened
from tests.unit.evidence.replay_samples import GAME, ODD_REPLIES, players
from tests.unit.samples import SEEDS

pytestmark = pytest.mark.slow_s(15)


@pytest.fixture(scope="module")
def played() -> list[Player]:
    return players()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, played: list[Player]) -> Iterator[Page]:
    path = tmp_path_factory.mktemp("page") / "replays.html"
    path.write_text(replay_page("r <b>1</b>", "about", played), encoding="utf-8")
    with opened(path) as page:
        yield page


def outcome_text(report: EvalReport, number: int) -> str:
    outcome = report.outcomes[number]
    turns = "turn" if outcome.num_turns == 1 else "turns"
    return f"{ending_of(outcome, GAME.max_turns)}, {outcome.num_turns} {turns}"


def test_all_mazes_are_shown_with_the_outcomes_of_the_records(page: Page, played: list[Player]) -> None:
    page.click("[data-filter=all]")
    shown = page.eval_on_selector_all(
        ".maze", "cards => cards.map(card => [...card.querySelectorAll('.how')].map(how => how.textContent))"
    )
    assert shown == [[outcome_text(player.report, number) for player in played] for number in range(64)]


@pytest.mark.parametrize(("one", "other"), [(0, 2), (1, 2), (2, 0)])
def test_filters_count_and_show_their_mazes(page: Page, played: list[Player], one: int, other: int) -> None:
    page.select_option("#one", str(one))
    page.select_option("#other", str(other))
    pairs = [
        (a.solved, b.solved) for a, b in zip(played[one].report.outcomes, played[other].report.outcomes, strict=True)
    ]
    of_kind = {"won": (False, True), "lost": (True, False), "both": (True, True), "neither": (False, False)}
    for name, kind in of_kind.items():
        wanted = [str(number) for number, pair in enumerate(pairs) if pair == kind]
        assert page.inner_text(f"[data-filter={name}]").endswith(f": {len(wanted)}")
        page.click(f"[data-filter={name}]")
        assert page.eval_on_selector_all(".maze", "cards => cards.map(card => card.dataset.maze)") == wanted
        assert page.is_visible("#none") == (not wanted)
    assert sum(int(page.inner_text(f"[data-filter={name}]").rsplit(" ", 1)[1]) for name in of_kind) == 64


def test_detours_of_all_mazes_add_up_to_the_table(page: Page, played: list[Player]) -> None:
    page.click("[data-filter=all]")
    for which, player in enumerate(played):
        told = page.eval_on_selector_all(
            f".maze [data-player='{which}'] .did", "nodes => nodes.map(node => node.textContent)"
        )
        did = behaviour_of(player.report)
        for what, number in (
            ("turned back", did.turned_back),
            ("hit a wall", did.hit_walls),
            ("no action", did.unparsable_replies),
        ):
            assert sum(int(found) for text in told for found in re.findall(rf"{what} (\d+)", text)) == number > 0
        row = page.eval_on_selector_all(
            f"#behaviour tbody tr:nth-child({which + 1}) td", "nodes => nodes.map(node => node.textContent)"
        )
        assert row == [str(cell) for cell in behaviour_row(player.name, did)]


def test_a_maze_is_played_with_the_keyboard_turn_by_turn(page: Page, played: list[Player]) -> None:
    number = next(n for n, outcome in enumerate(played[0].report.outcomes) if outcome.unparsable_replies)
    maze, outcome = generate_maze(SEEDS[number], 7, 9), played[0].report.outcomes[number]
    page.click("[data-filter=all]")
    page.click(f"[data-maze='{number}']")
    board = "#boards > [data-player='0']"
    for count, turn in enumerate(turns_of(maze, outcome), start=1):
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#turn").startswith(f"turn {count} of")
        told = {
            what: page.eval_on_selector(f"{board} [data-what={what}]", "node => node.textContent")
            for what in ("reply", "action", "answer")
        }
        assert (told["reply"], told["answer"]) == (turn.reply, turn.feedback)
        assert (told["action"] == "none found") == (turn.letter == "?")
    assert page.inner_text(f"{board} .how") == outcome_text(played[0].report, number)
    page.keyboard.press("Home")
    assert page.inner_text("#turn").startswith("turn 0 of")
    page.keyboard.press("Escape")
    assert not page.is_visible("#player")


def test_play_goes_to_the_end_and_pause_stops_it(page: Page) -> None:
    page.click("[data-filter=all]")
    page.click("[data-maze='0']")
    page.keyboard.press(" ")
    page.clock.run_for(2 * TURN_MS)
    assert page.inner_text("#turn").startswith("turn 2 of")
    page.keyboard.press(" ")
    assert page.inner_text("#play").endswith("play")
    page.clock.run_for(3 * TURN_MS)
    assert page.inner_text("#turn").startswith("turn 2 of")
    page.keyboard.press(" ")
    page.clock.run_for(100 * TURN_MS)
    _, turn, _, turns = page.inner_text("#turn").split()
    assert (turn, page.inner_text("#play")[-4:]) == (turns, "play")
    page.keyboard.press("n")
    assert page.inner_text("#player-title").startswith("Maze 2:")
    page.keyboard.press("Escape")


def test_a_drawn_frame_is_the_picture_that_the_agent_saw(page: Page) -> None:
    for number in (0, 5, 63):
        maze = generate_maze(SEEDS[number], 7, 9)
        for agent in (maze.start, maze.target, (1, 2)):
            pixels = page.evaluate(
                """([number, agent]) => {
                    const canvas = document.createElement("canvas");
                    drawSeen(canvas, data.mazes[number], agent);
                    const all = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
                    return [all.height, all.width, [...all.data]];
                }""",
                [number, list(agent)],
            )
            drawn = np.array(pixels[2], np.uint8).reshape(pixels[0], pixels[1], 4)[..., :3]
            assert (drawn == render(maze, agent, GAME.maze.cell_px)).all()


def test_a_reply_that_holds_markup_stays_text(page: Page, played: list[Player]) -> None:
    said = [one.reply for player in played for outcome in player.report.outcomes for one in outcome.said or ()]
    assert ODD_REPLIES[0] in said
    assert page.title() == "r <b>1</b>: replays"
    assert page.eval_on_selector_all("img, #title b, dd script", "nodes => nodes.length") == 0


def test_a_phone_scrolls_in_one_direction(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_page_is_small_also_where_a_player_talks_much(played: list[Player]) -> None:
    assert len(replay_page("r", "", played)) < 400_000
    chatter = "because the wall is <there> \u2014 " * 12
    talkers = []
    for player in played:
        outcomes = tuple(
            outcome.model_copy(
                update={"said": tuple(Said(turn=turn, reply=chatter) for turn in range(outcome.num_turns))}
            )
            for outcome in player.report.outcomes
        )
        talkers.append(replace(player, report=player.report.model_copy(update={"outcomes": outcomes})))
    assert len(replay_page("r", "", talkers).encode()) < 5_000_000


def test_players_of_other_mazes_have_no_page_together(played: list[Player]) -> None:
    other = played[1].report.model_copy(update={"outcomes": played[1].report.outcomes[::-1]})
    with pytest.raises(ValueError, match="base, x did not play the same mazes"):
        replay_page("r", "", [played[0], Player("x", other)])


def test_nothing_but_its_own_script_and_style_is_let_in(page: Page) -> None:
    refused = page.evaluate(
        """() => new Promise(resolve => {
            const script = document.createElement("script");
            script.textContent = "window.brokenIn = true";
            document.body.append(script);
            resolve(window.brokenIn === undefined);
        })"""
    )
    assert refused
