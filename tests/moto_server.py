"""AWS as moto plays it: one backend a service, made from botocore's service models.

What moto's servers hold lies in their process and is the same for all of them: a bucket that one test file made is
there for the next one, behind another port too. So each starts from nothing, by the address moto has for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import requests
from moto.server import ThreadedMotoServer


@contextmanager
def moto_server() -> Iterator[str]:
    """Its address on loopback, which is yielded; it holds nothing."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        url = "http://{}:{}".format(*server.get_host_and_port())
        requests.post(f"{url}/moto-api/reset", proxies={"http": ""}, timeout=10).raise_for_status()
        yield url
    finally:
        server.stop()
