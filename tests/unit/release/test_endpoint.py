"""Playing and deploying over HTTP, against servers on loopback that this file writes out."""

from __future__ import annotations

import base64
import io
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import flows.cli.chat
from rl.maze.eval_set import build_eval_set
from rl.maze.grid import Direction, moved
from rl.maze.pictures import read_grid
from rl.maze.prompts import Move, Stop, action_text
from rl.maze.score import GREEDY, EvalRules
from rl.settings import DataSettings, MazeSettings
from serving.app import serve_document
from tasks.clients.retry import PATIENT
from tasks.clients.serve_rest import ServeRest
from tasks.errors import (
    AddressTaken,
    ContextExceeded,
    EndpointFailed,
    ListensElsewhere,
    ModelNotServed,
    RolloutFailed,
    WrongModelAnswered,
)
from tasks.records import ServedModel
from tasks.release.evaluate import play_eval_set, play_maze
from tasks.release.openai_chat import ChatEndpoint
from tasks.release.settings import EvaluationSettings, PlaySettings
from tests.unit.samples import SERVER

Answer = tuple[int, Any]
MAZE = MazeSettings(height=7, width=9, cell_px=8)
DATA = DataSettings(
    maze=MAZE, eval_manifest="unused", eval_sha256="0" * 64, num_train_mazes=8, max_turns=15, parsing="tolerant"
)


@contextmanager
def http(answer: Callable[[str, str, Any], Answer]) -> Iterator[str]:
    """A server that answers (method, path, body) with (status, document), or hangs up; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, document = answer(self.command, self.path, json.loads(raw) if raw else None)
            if not status:
                self.close_connection = True
                return
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = _serve  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def way_out(messages: list[dict[str, Any]]) -> str:
    """What somebody answers who reads the last picture and nothing else."""
    url = messages[-1]["content"][1]["image_url"]["url"]
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB"))
    wall_HW, agent, target = read_grid(picture, MAZE.cell_px)
    if agent == target:
        return action_text(Stop())
    distance, queue = {target: 0}, [target]
    for cell in queue:
        for direction in Direction:
            there = moved(cell, direction)
            inside = 0 <= there[0] < MAZE.height and 0 <= there[1] < MAZE.width
            if inside and not wall_HW[there] and there not in distance:
                distance[there] = distance[cell] + 1
                queue.append(there)
    return action_text(Move(min(Direction, key=lambda d: distance.get(moved(agent, d), 999))))


def chat_answer(body: Any, model: str | None = None) -> Answer:
    message = {"role": "assistant", "content": way_out(body["messages"])}
    return 200, {"model": model or body["model"], "choices": [{"message": message}]}


QUICK = PATIENT.new(backoff_factor=0)
EVAL_SET = build_eval_set("maze_2d", MAZE.height, MAZE.width, 12)
SETTINGS = EvaluationSettings(data=DATA, play=PlaySettings(max_reply_tokens=8, num_concurrent=4))


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


DOCUMENT = serve_document(SERVER)


class FakeServe:
    """Ray Serve's REST API: takes an application and walks through the states it was told."""

    def __init__(self, *states: tuple[str, str], deployed: dict[str, Any] | None = None) -> None:
        self.states, self.deployed, self.puts = list(states), deployed, 0

    def __call__(self, method: str, path: str, body: Any) -> Answer:
        assert path == "/api/serve/applications/"
        if method == "PUT":
            self.puts += 1
            (self.deployed,) = body["applications"]
            return 200, {}
        if self.deployed is None:
            return 200, {"applications": {}}
        status, message = self.states[0] if len(self.states) == 1 else self.states.pop(0)
        shown = {"status": status, "message": message, "last_deployed_time_s": self.puts}
        replica = {"status": status, "message": "FileNotFoundError: /models/tiny" if status == "DEPLOY_FAILED" else ""}
        application = {**shown, "deployed_app_config": self.deployed, "deployments": {"LLMServer": replica}}
        return 200, {"applications": {"llm": application}}


def ensure(serve: FakeServe, timeout_s: float = 5.0, say: Callable[[str], object] = print) -> bool:
    with http(serve) as url:
        return ServeRest(url, say, sleep=lambda s: None).ensure(DOCUMENT, timeout_s, poll_s=0.0)


def test_an_application_is_deployed_once_and_then_left_alone() -> None:
    serve, said = FakeServe(("DEPLOYING", ""), ("DEPLOYING", ""), ("RUNNING", "")), []
    assert ensure(serve, say=said.append)
    assert said == [
        "application llm: deploying; LLMServer deploying",
        "application llm: running; LLMServer running",
    ]
    assert not ensure(serve)
    assert serve.puts == 1


def test_other_settings_are_deployed_over_the_running_application() -> None:
    other = serve_document(SERVER.model_copy(update={"max_loras": 2}))["applications"][0]
    serve = FakeServe(("RUNNING", ""), deployed=other)
    assert ensure(serve)
    assert serve.puts == 1
    assert serve.deployed == DOCUMENT["applications"][0]


def test_a_dashboard_that_stumbles_is_asked_again_and_one_that_stays_away_is_named() -> None:
    serve, count = FakeServe(("RUNNING", ""), deployed=None), itertools.count()

    def answer(method: str, path: str, body: Any) -> Answer:
        return (503, {}) if next(count) % 2 == 0 else serve(method, path, body)

    with http(answer) as url:
        assert ServeRest(url, print, lambda s: None, QUICK).ensure(DOCUMENT, 5.0, poll_s=0.0)
    assert serve.puts == 1
    with pytest.raises(RolloutFailed, match=r"does not answer .*correct serve\.dashboard"):
        ServeRest(url, print, lambda s: None, QUICK).remove()


def test_a_deployment_under_way_is_joined() -> None:
    serve = FakeServe(("DEPLOYING", ""), ("RUNNING", ""), deployed=DOCUMENT["applications"][0])
    assert ensure(serve)
    assert serve.puts == 0


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 9999), ("10.0.0.7", 8000)])
def test_a_serve_that_listens_elsewhere_is_named_with_both_addresses_and_nothing_is_deployed(
    host: str, port: int
) -> None:
    """Serve keeps the address that it was started with (ray/serve/schema.py, ServeInstanceDetails.http_options)."""
    serve = FakeServe(("RUNNING", ""), deployed=DOCUMENT["applications"][0])

    def answer(method: str, path: str, body: Any) -> Answer:
        status, document = serve(method, path, body)
        return status, {**document, "http_options": {"host": host, "port": port}}

    wanted = rf"listens on {host}:{port}, platform\.serve\.server\.listen is 127\.0\.0\.1:8000"
    with http(answer) as url:
        for ask in (
            lambda: ServeRest(url).ensure(DOCUMENT, 1.0),
            lambda: ServeRest(url).require_address(SERVER.listen),
        ):
            with pytest.raises(ListensElsewhere, match=wanted) as raised:
                ask()
            assert "maze-retrain down" in raised.value.todo
    assert serve.puts == 0


@pytest.mark.parametrize("options", [None, {}, {"host": "127.0.0.1", "port": 8000}, {"host": "0.0.0.0", "port": 8000}])
def test_a_serve_that_listens_there_or_does_not_run_yet_is_taken(options: Any) -> None:
    with http(lambda *_: (200, {"applications": {}, "http_options": options})) as url:
        assert "8000" in ServeRest(url).require_address(SERVER.listen)


def test_a_port_that_another_process_holds_is_told_before_anything_is_deployed() -> None:
    with socket.socket() as squatter, http(lambda *_: (200, {"applications": {}})) as url:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        listen = f"127.0.0.1:{squatter.getsockname()[1]}"
        for wanted in (listen, listen.replace("127.0.0.1", "0.0.0.0")):
            with pytest.raises(AddressTaken, match=rf"another process listens on {wanted}, where Serve would"):
                ServeRest(url).require_address(wanted)


def test_the_base_s_own_sampling_values_do_not_count_unless_they_are_asked_for() -> None:
    def engine(**more: Any) -> dict[str, Any]:
        document = serve_document(SERVER.model_copy(update={"engine_kwargs": more}))
        return document["applications"][0]["args"]["llm_configs"][0]["engine_kwargs"]

    assert engine()["generation_config"] == "vllm"
    assert engine(generation_config="auto")["generation_config"] == "auto"


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


def test_a_failed_application_is_tried_again_and_its_replicas_say_why_it_failed() -> None:
    serve = FakeServe(("DEPLOY_FAILED", "replica died"), deployed=DOCUMENT["applications"][0])
    with pytest.raises(RolloutFailed, match=r"(?s)llm is DEPLOY_FAILED; replica died.*FileNotFoundError: /models/tiny"):
        ensure(serve)
    assert serve.puts == 1
    assert serve.deployed is not None
    assert "DEPLOY_NONCE" in serve.deployed["runtime_env"]["env_vars"]


def test_an_application_that_stays_away_is_given_up_after_the_time_limit() -> None:
    with pytest.raises(RolloutFailed, match=r"llm is DEPLOYING after 0.05 s; waiting for a node"):
        ensure(FakeServe(("DEPLOYING", "waiting for a node")), timeout_s=0.05)
