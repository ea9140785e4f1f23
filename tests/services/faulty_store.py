"""A proxy before an object store that answers some requests as S3 does when it cannot or will not.

Bodies and codes are S3's (docs: API_ErrorResponses, "List of error codes"): InternalError 500, SlowDown 503,
AccessDenied 403, ExpiredToken 400.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

ANSWERS = {
    "InternalError": (500, "We encountered an internal error. Please try again."),
    "SlowDown": (503, "Please reduce your request rate."),
    "AccessDenied": (403, "Access Denied"),
    "ExpiredToken": (400, "The provided token has expired."),
}
CUT = "cut"
"""No answer: the connection is closed when the request has arrived, and the store has heard of it."""


@dataclass
class Faulty:
    """What is asked, and which of it goes wrong."""

    address: str = ""
    asked: list[str] = field(default_factory=list)
    """Method and the key's last part, of each request."""
    fault: str = ""
    wanted: tuple[str, ...] = ()
    """Requests that go wrong, as ``asked`` has them."""
    left: int = 0
    """How many more of them."""

    def goes_wrong(self, request: str) -> str:
        self.asked.append(request)
        if request in self.wanted and self.left > 0:
            self.left -= 1
            return self.fault
        return ""


@contextmanager
def before(store: str) -> Iterator[Faulty]:
    """The proxy, as long as the block runs."""
    faulty, behind = Faulty(), urlsplit(store).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = faulty.goes_wrong(f"{self.command} {self.path.partition('?')[0].rpartition('/')[2]}")
            if fault in ANSWERS:
                status, message = ANSWERS[fault]
                said = f"<Error><Code>{fault}</Code><Message>{message}</Message></Error>".encode()
                return self._send(status, {"Content-Type": "application/xml"}, said)
            connection = http.client.HTTPConnection(behind, timeout=30)
            # Signed with this proxy's name: the store checks the signature by the header.
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if fault == CUT:
                self.close_connection = True
                return self.connection.shutdown(socket.SHUT_RDWR)
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP}
            self._send(answer.status, headers, content)

        def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815 - http.server's names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    faulty.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield faulty
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


HOP_BY_HOP = ("connection", "content-length", "transfer-encoding")
