"""AWS CodeBuild on loopback, as far as the pipeline speaks it (JSON 1.1).

A started build goes on by one step of the script each time it is looked at alone; the last step stays. A test may also
run something of its own when a build starts (``on_start``), which then changes the build as it likes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Build = dict[str, Any]


class FakeCodeBuild:
    """State and script of one account."""

    def __init__(self) -> None:
        self.builds: dict[str, Build] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """Every request: its action and its body."""
        self.script: list[Callable[[Build], object]] = []
        self.on_start: Callable[[Build, dict[str, Any]], object] = lambda build, request: None
        self.refusal: tuple[str, str] | None = None

    def actions(self) -> list[str]:
        return [action for action, _ in self.asked]

    def start(self, request: dict[str, Any]) -> dict[str, Any]:
        build: Build = {
            "id": f"{request['projectName']}:{len(self.builds) + 1}",
            "projectName": request["projectName"],
            "buildStatus": "IN_PROGRESS",
            "currentPhase": "QUEUED",
            "source": {"type": request["sourceTypeOverride"], "location": request["sourceLocationOverride"]},
            "phases": [],
            "logs": {},
        }
        self.builds[build["id"]] = build
        self.on_start(build, request)
        return {"build": build}

    def look(self, request: dict[str, Any]) -> dict[str, Any]:
        known = [self.builds[name] for name in request["ids"] if name in self.builds]
        for build in known:
            if build["buildStatus"] == "IN_PROGRESS" and self.script and len(known) == 1:
                (self.script.pop(0) if len(self.script) > 1 else self.script[0])(build)
        return {"builds": known, "buildsNotFound": [name for name in request["ids"] if name not in self.builds]}

    def listed(self, request: dict[str, Any]) -> dict[str, Any]:
        ids = [name for name, build in self.builds.items() if build["projectName"] == request["projectName"]]
        return {"ids": ids[::-1]}

    def stop(self, request: dict[str, Any]) -> dict[str, Any]:
        build = self.builds[request["id"]]
        build["buildStatus"] = "STOPPED"
        return {"build": build}


def _handler(fake: FakeCodeBuild) -> type[BaseHTTPRequestHandler]:
    actions = {
        "StartBuild": fake.start,
        "BatchGetBuilds": fake.look,
        "ListBuildsForProject": fake.listed,
        "StopBuild": fake.stop,
    }

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            action = self.headers["X-Amz-Target"].removeprefix("CodeBuild_20161006.")
            fake.asked.append((action, body))
            status, answer = 200, {}
            if fake.refusal:
                status, answer = 400, {"__type": fake.refusal[0], "message": fake.refusal[1]}
            else:
                answer = actions[action](body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


@contextmanager
def codebuild_api() -> Iterator[tuple[FakeCodeBuild, str]]:
    """The account and the address of its API."""
    fake = FakeCodeBuild()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield fake, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
