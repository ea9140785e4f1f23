"""An endpoint on loopback whose model sees the way, for tests that play through one."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

from rl.maze.eval_set import build_eval_set
from rl.maze.grid import Direction, moved
from rl.maze.pictures import read_grid
from rl.maze.prompts import Move, Stop, action_text
from rl.settings import DataSettings, MazeSettings
from tasks.clients.retry import PATIENT
from tasks.release.settings import EvaluationSettings, PlaySettings

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
