"""Playing and deploying over HTTP, against servers on loopback that this file writes out."""

from __future__ import annotations

import base64
import io
import json
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
from rl.settings import DataSettings, MazeSettings
from serving.app import serve_document
from tasks.clients.serve_rest import ServeRest
from tasks.errors import EndpointFailed, ModelNotServed, RolloutFailed, WrongModelAnswered
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
    """A server that answers (method, path, body) with (status, document); yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, document = answer(self.command, self.path, json.loads(raw) if raw else None)
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


def test_an_agent_that_sees_the_way_solves_every_maze_that_can_be_solved_in_time() -> None:
    eval_set = build_eval_set("maze_2d", MAZE.height, MAZE.width, 12)
    with http(lambda method, path, body: chat_answer(body)) as url:
        settings = EvaluationSettings(data=DATA, play=PlaySettings(max_reply_tokens=8, num_concurrent=4))
        report = play_eval_set(settings, ServedModel(url=url, model_id="tiny:a", step=4), eval_set)
    in_time = [maze.turns_needed <= DATA.max_turns for maze in eval_set.mazes]
    assert [outcome.solved for outcome in report.outcomes] == in_time
    assert (report.step, report.model_id) == (4, "tiny:a")


def test_a_reply_from_another_model_ends_the_evaluation() -> None:
    with (
        http(lambda method, path, body: chat_answer(body, model="tiny")) as url,
        pytest.raises(WrongModelAnswered, match="asked tiny:a for maze 1, tiny answered"),
    ):
        play_maze(ChatEndpoint(url), "tiny:a", 1, DATA, 8)


def test_the_champion_may_be_any_adapter_but_not_change_within_a_maze() -> None:
    names = iter(["tiny:a", "tiny:b"])
    with http(lambda method, path, body: chat_answer(body, model="tiny:a")) as url:
        assert play_maze(ChatEndpoint(url), "tiny:champion", 1, DATA, 8).num_turns > 1
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
        ChatEndpoint(url).chat("tiny", [], 8)


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


def test_a_deployment_under_way_is_joined() -> None:
    serve = FakeServe(("DEPLOYING", ""), ("RUNNING", ""), deployed=DOCUMENT["applications"][0])
    assert ensure(serve)
    assert serve.puts == 0


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
