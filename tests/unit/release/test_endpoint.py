"""Playing over HTTP, against servers on loopback that the tests write out."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import flows.cli.chat
from rl.maze.eval_set import build_eval_set
from rl.maze.score import GREEDY, EvalRules
from tasks.errors import ContextExceeded, EndpointFailed, ModelNotServed, WrongModelAnswered
from tasks.records import ServedModel
from tasks.release.evaluate import play_eval_set, play_maze
from tasks.release.openai_chat import ChatEndpoint
from tasks.release.settings import EvaluationSettings, PlaySettings
from tests.unit.release.endpoint_server import DATA, EVAL_SET, MAZE, QUICK, SETTINGS, Answer, chat_answer, http


def test_an_agent_that_sees_the_way_solves_every_maze_that_can_be_solved_in_time() -> None:
    eval_set = build_eval_set("maze_2d", MAZE.height, MAZE.width, 12)
    with http(lambda method, path, body: chat_answer(body)) as url:
        settings = EvaluationSettings(data=DATA, play=PlaySettings(max_reply_tokens=8, num_concurrent=4))
        report = play_eval_set(settings, ServedModel(url=url, model_id="tiny:a", step=4), eval_set)
    in_time = [maze.turns_needed <= DATA.max_turns for maze in eval_set.mazes]
    assert [outcome.solved for outcome in report.outcomes] == in_time
    assert (report.step, report.model_id) == (4, "tiny:a")
    assert report.rules == EvalRules(
        eval_set_sha256=eval_set.sha256,
        maze=DATA.maze,
        max_turns=DATA.max_turns,
        parsing=DATA.parsing,
        max_reply_tokens=settings.play.max_reply_tokens,
        temperature=GREEDY,
    )


def test_a_reply_from_another_model_ends_the_evaluation() -> None:
    with (
        http(lambda method, path, body: chat_answer(body, model="tiny")) as url,
        pytest.raises(WrongModelAnswered, match="asked tiny:a for maze 1, tiny answered"),
    ):
        play_maze(ChatEndpoint(url), "tiny:a", 1, DATA, 8)


def test_the_champion_may_be_any_adapter_but_not_change_within_a_maze() -> None:
    names = iter(["tiny:a", "tiny:b"])
    with http(lambda method, path, body: chat_answer(body, model="tiny:a")) as url:
        played = play_maze(ChatEndpoint(url), "tiny:champion", 1, DATA, 8)
    assert (played.model, played.outcome.num_turns > 1) == ("tiny:a", True)
    with (
        http(lambda method, path, body: chat_answer(body, model=next(names))) as url,
        pytest.raises(WrongModelAnswered, match="tiny:b answered where tiny:a was expected"),
    ):
        play_maze(ChatEndpoint(url), "tiny:champion", 1, DATA, 8)


def test_an_endpoint_s_refusal_keeps_its_own_words() -> None:
    with http(lambda *_: (404, {"error": "no adapter nobody"})) as url, pytest.raises(ModelNotServed, match="nobody"):
        ChatEndpoint(url).chat("tiny:nobody", [], 8)
    with http(lambda *_: (500, {"error": "engine died"})) as url, pytest.raises(EndpointFailed, match="engine died"):
        ChatEndpoint(url).chat("tiny", [], 8)
    with pytest.raises(EndpointFailed, match="is the Serve application up"):
        ChatEndpoint(url, retry=QUICK).chat("tiny", [], 8)


@pytest.mark.parametrize("answered", ["tiny", "tiny:champion", "tiny:", "other:a", ""])
def test_the_champion_s_name_is_answered_by_an_adapter_of_its_base_or_not_at_all(answered: str) -> None:
    def answer(method: str, path: str, body: Any) -> Answer:
        return 200, {**chat_answer(body)[1], "model": answered}

    with http(answer) as url, pytest.raises(WrongModelAnswered, match="where an adapter of tiny was expected"):
        play_eval_set(SETTINGS, ServedModel(url=url, model_id="tiny:champion"), EVAL_SET)


def test_an_evaluation_of_the_champion_says_which_adapter_answered_and_that_it_was_one() -> None:
    with http(lambda method, path, body: chat_answer(body, model="tiny:a")) as url:
        report = play_eval_set(SETTINGS, ServedModel(url=url, model_id="tiny:champion"), EVAL_SET)
    assert report.model_id == "tiny:a"
    asked: dict[str, str] = {}

    def other_for_each_maze(method: str, path: str, body: Any) -> Answer:
        first = json.dumps(body["messages"][0])
        return chat_answer(body, model=asked.setdefault(first, f"tiny:{len(asked) % 2}"))

    with (
        http(other_for_each_maze) as url,
        pytest.raises(WrongModelAnswered, match="was answered by tiny:0 and tiny:1 in one evaluation"),
    ):
        play_eval_set(SETTINGS, ServedModel(url=url, model_id="tiny:champion"), EVAL_SET)


@pytest.mark.parametrize("lacking", ["model", "choices"])
def test_a_reply_without_what_belongs_in_it_is_the_endpoint_s_failure(lacking: str) -> None:
    def answer(method: str, path: str, body: Any) -> Answer:
        document = chat_answer(body)[1]
        return 200, {key: value for key, value in document.items() if key != lacking}

    with http(answer) as url, pytest.raises(EndpointFailed, match=f"a chat was answered without '{lacking}'"):
        play_maze(ChatEndpoint(url), "tiny:a", 1, DATA, 8)


@pytest.mark.parametrize("stumble", ["503", "429", "closes"])
def test_an_endpoint_that_stumbles_now_and_then_is_asked_again(stumble: str) -> None:
    count = itertools.count()

    def answer(method: str, path: str, body: Any) -> Answer:
        if next(count) % 7 == 3:
            return (0, None) if stumble == "closes" else (int(stumble), {"error": "busy"})
        return chat_answer(body)

    with http(answer) as url:
        report = play_eval_set(SETTINGS, ServedModel(url=url, model_id="tiny:a"), EVAL_SET, retry=QUICK)
    assert report.num_solved == sum(maze.turns_needed <= DATA.max_turns for maze in EVAL_SET.mazes)


def test_an_endpoint_that_stays_away_ends_the_evaluation_with_its_words_and_the_rest_is_not_played() -> None:
    seen: set[str] = set()

    def answer(method: str, path: str, body: Any) -> Answer:
        seen.add(json.dumps(body["messages"][0]))
        return 503, {"error": "no replica is up"}

    with http(answer) as url, pytest.raises(EndpointFailed, match=r"answered 503: .*no replica is up"):
        play_eval_set(SETTINGS, ServedModel(url=url, model_id="tiny:a"), EVAL_SET, retry=QUICK)
    assert len(seen) <= 2 * SETTINGS.play.num_concurrent < len(EVAL_SET.mazes)


def test_after_the_first_final_error_mazes_under_way_stop_at_their_next_turn() -> None:
    lock, asked = threading.Lock(), []

    def answer(method: str, path: str, body: Any) -> Answer:
        with lock:
            asked.append(len(body["messages"]))
        if len(body["messages"]) == 3:
            return 500, {"error": "engine died"}
        return chat_answer(body)

    with http(answer) as url, pytest.raises(EndpointFailed, match="engine died"):
        play_eval_set(SETTINGS, ServedModel(url=url, model_id="tiny:a"), EVAL_SET, retry=QUICK)
    assert max(asked) == 3
    assert asked.count(1) < len(EVAL_SET.mazes)


TOO_LONG = [
    # vllm/renderers/params.py, vllm/v1/engine/input_processor.py
    "This model's maximum context length is 1024 tokens. However, you requested 8 output tokens and your prompt "
    "contains 1030 input tokens, for a total of 1038 tokens.",
    "The decoder prompt (length 1030) is longer than the maximum model length of 1024.",
    "the conversation exceeds maximum context length",
]


@pytest.mark.parametrize("words", TOO_LONG)
def test_a_maze_that_outgrows_the_model_is_not_solved_and_the_others_are_played(words: str) -> None:
    longest = max(maze.turns_needed for maze in EVAL_SET.mazes if maze.turns_needed <= DATA.max_turns)

    def answer(method: str, path: str, body: Any) -> Answer:
        if len(body["messages"]) >= 2 * longest - 1:
            return 400, {"error": {"message": words, "type": "BadRequestError", "code": 400}}
        return chat_answer(body)

    with http(answer) as url:
        report = play_eval_set(SETTINGS, ServedModel(url=url, model_id="tiny:a"), EVAL_SET)
    assert [outcome.solved for outcome in report.outcomes] == [m.turns_needed < longest for m in EVAL_SET.mazes]
    with http(lambda *_: (400, {"error": "messages: field required"})) as url, pytest.raises(EndpointFailed) as caught:
        ChatEndpoint(url).chat("tiny", [], 8)
    assert not isinstance(caught.value, ContextExceeded)


def test_one_model_is_asked_for_alone() -> None:
    asked: list[str] = []

    def answer(method: str, path: str, body: Any) -> Answer:
        asked.append(path)
        return (200, {"id": "tiny:a"}) if path.endswith("tiny%3Aa") else (404, {"error": "no such model"})

    with http(answer) as url:
        assert ChatEndpoint(url).lists("tiny:a")
        assert not ChatEndpoint(url).lists("tiny:b")
    assert asked == ["/v1/models/tiny%3Aa", "/v1/models/tiny%3Ab"]


def test_a_maze_can_be_watched_turn_by_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Settings:
        url, data, play = "", DATA, PlaySettings(max_reply_tokens=8)

    with http(lambda method, path, body: chat_answer(body)) as Settings.url:
        solved = flows.cli.chat.watch(Settings, "tiny:a", 3, tmp_path / "maze.gif")
    turns = [line for line in capsys.readouterr().out.splitlines() if line.startswith("turn ")]
    picture = Image.open(tmp_path / "maze.gif")
    assert solved
    assert getattr(picture, "n_frames", 1) == len(turns) + 1
    assert turns[-1].endswith("('stop', 'stop')")


@pytest.mark.parametrize("spelled", ["<|image_pad|>", "<|vision_start|><|image_pad|><|vision_end|>", "<|im_end|>\n"])
def test_what_a_reply_spells_is_no_picture_and_no_turn_and_the_maze_is_played_on(spelled: str) -> None:
    asked: list[Any] = []

    def answer(method: str, path: str, body: Any) -> Answer:
        asked.append(body["messages"])
        status, document = chat_answer(body)
        document["choices"][0]["message"]["content"] += spelled
        return status, document

    with http(answer) as url:
        played = play_maze(ChatEndpoint(url), "tiny:a", 1, DATA, 8)
    replies = [message["content"] for message in asked[-1] if message["role"] == "assistant"]
    assert len(replies) == played.outcome.num_turns - 1 > 0
    assert not any("<|" in reply or "|>" in reply for reply in replies)
    assert played.outcome.solved
