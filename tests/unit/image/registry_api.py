"""An image registry on loopback, as far as the pipeline speaks it: does a tag exist, and with which digest?"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeRegistry:
    """Tags and who may ask for them."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        """``<repository>:<tag>`` -> digest; a PUT from whoever builds adds one."""
        self.password = ""
        self.status = 200
        self.accepted = ""
        """What the last client accepts."""
        self.url = ""


def _handler(fake: FakeRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def _answer(self, status: int, digest: str = "") -> None:
            self.send_response(status)
            if digest:
                self.send_header("Docker-Content-Digest", digest)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _name(self) -> str:
            return self.path.removeprefix("/v2/").replace("/manifests/", ":")

        def do_HEAD(self) -> None:
            fake.accepted = self.headers.get("Accept", "")
            wanted = "Basic " + base64.b64encode(f"AWS:{fake.password}".encode()).decode()
            if fake.password and self.headers.get("Authorization") != wanted:
                return self._answer(401)
            if fake.status != 200:
                return self._answer(fake.status)
            found = fake.digests.get(self._name())
            return self._answer(200, found) if found else self._answer(404)

        def do_PUT(self) -> None:
            fake.digests[self._name()] = self.headers["Docker-Content-Digest"]
            self._answer(201)

    return Handler


@contextmanager
def registry_api() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
