"""An API server of the tests on loopback, and the kubeconfig that leads clients to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def on_loopback(folder: Path, handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve until the end of the block; yields the kubeconfig's path."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "maze",
        "contexts": [{"name": "maze", "context": {"cluster": "maze", "user": "me"}}],
        "clusters": [{"name": "maze", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document))
    try:
        yield str(path)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
