"""What the endpoint refuses, on a real Ray Serve with vLLM's own picture connector behind the door; no model."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from PIL import Image

from serving.door import API_KEY_VARIABLE
from tasks.errors import ContextExceeded, EndpointFailed
from tasks.release.openai_chat import ChatEndpoint
from tests.services.loopback import free_port

pytestmark = pytest.mark.slow_s(180)
ROOT = Path(__file__).resolve().parents[3]
KEY = "canary-endpoint-key"
LONG_S = 5.0
"""What ``takes long`` takes (serve_door.py)."""
INTERNALS = ("Error", "Exception", "ray", "vllm", "Traceback", "/root", "object at", "class", "pydantic")
"""What no answer to a client says, by its case."""


@contextmanager
def endpoint(folder: Path, **environment: str) -> Iterator[str]:
    port = free_port()
    command = [str(ROOT / ".venv-serve" / "bin" / "python"), "-m", "tests.services.release.serve_door", str(port)]
    nobody = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    ours = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "AWS_DEFAULT_REGION": "us-east-1"}
    env = {**os.environ, **nobody, **ours, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT), **environment}
    with (folder / "log").open("w") as log:
        served = subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert served.stdin is not None
    assert served.stdout is not None
    try:
        assert "ready\n" in served.stdout, (folder / "log").read_text()[-3000:]
        yield f"http://127.0.0.1:{port}"
    finally:
        served.stdin.close()
        served.wait(60)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    # Short: Ray's sockets lie below, and their paths may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="d-") as folder, endpoint(Path(folder)) as address:
        yield address


class Inside(BaseHTTPRequestHandler):
    """A server of the endpoint's own network, which a client cannot reach."""

    asked: tuple[str, ...] = ()

    def do_GET(self) -> None:
        type(self).asked += (self.path,)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(picture(8, 8))

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def inside() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Inside)
    Inside.asked = ()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def picture(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("1", (width, height)).save(file, "PNG")
    return file.getvalue()


def data(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def asking(*parts: Any, model: str = "tiny", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": list(parts)}], **more}


def image(address: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": address}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def ask(url: str, body: Any, **headers: str) -> requests.Response:
    return requests.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)


def refused(response: requests.Response, status: int = 400) -> str:
    """The message, of an answer that is in OpenAI's form and says nothing of what stands behind it."""
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == ("server_error" if status >= 500 else "invalid_request_error")
    # The type's own word is OpenAI's.
    assert not [word for word in INTERNALS if word in error["message"]], error
    return error["message"]


def test_text_and_a_picture_that_comes_with_the_request_are_answered(url: str) -> None:
    answer = ask(url, asking(image(data(picture(56, 72))), text("up")))
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "up"


@pytest.mark.parametrize(
    "address",
    [
        "{inside}/latest/meta-data",
        "HTTP://{inside_host}/upper",
        "http://user@{inside_host}/",
        "http://[::ffff:127.0.0.1]/",
        "https://example.org/cat.png",
        "ftp://{inside_host}/x",
        "file:///etc/passwd",
        "FILE:///etc/hostname",
        "/etc/passwd",
        "s3://models/x",
        "http://[",
        "",
        None,
        7,
        {"url": "{inside}"},
    ],
)
def test_a_picture_is_never_fetched_for_a_client(url: str, inside: str, address: Any) -> None:
    if isinstance(address, str):
        address = address.format(inside=inside, inside_host=inside.removeprefix("http://"))
    refused(ask(url, asking(image(address), text("up"))))
    refused(ask(url, asking({"type": "image_url", "image_url": address}, text("up"))))
    assert Inside.asked == ()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "video_url", "video_url": {"url": "{inside}/v"}},
        {"type": "audio_url", "audio_url": {"url": "{inside}/a"}},
        {"image_url": "{inside}/no-type"},
        {"type": "image_url", "image_url": {"url": "data:,"}, "uuid": "other-client"},
        {"type": "input_image", "image_url": "{inside}/i"},
        {"type": "image_embeds", "image_embeds": "gAJ9"},
        {"type": "text", "text": "x", "video_url": "{inside}/v"},
        7,
    ],
)
def test_no_other_kind_of_content_gets_in(url: str, inside: str, part: Any) -> None:
    refused(ask(url, asking(part, text("up"))))
    assert Inside.asked == ()


def forged(width: int, height: int) -> bytes:
    """A PNG's header that claims a size; there is nothing behind it."""
    header = b"IHDR" + width.to_bytes(4) + height.to_bytes(4) + bytes([8, 2, 0, 0, 0])
    chunk = (len(header) - 4).to_bytes(4) + header + zlib.crc32(header).to_bytes(4)
    return b"\x89PNG\r\n\x1a\n" + chunk + b"\x00\x00\x00\x00IDAT" + zlib.crc32(b"IDAT").to_bytes(4)


def test_a_picture_is_measured_before_it_is_decoded(url: str) -> None:
    """81 megapixels in 10 kB, and a header that claims gigapixels: Pillow's own limit only warns below 179 million."""
    huge = picture(9000, 9000)
    assert len(huge) < 100_000
    assert "9000 x 9000 pixels; at most 4194304" in refused(ask(url, asking(image(data(huge)))))
    assert "pixels" in refused(ask(url, asking(image(data(forged(2049, 2048))))))
    refused(ask(url, asking(image(data(forged(100_000, 100_000))))))


def test_what_is_no_picture_or_too_much_is_refused(url: str) -> None:
    assert "not base64" in refused(ask(url, asking(image("data:image/png;base64,????"))))
    assert "PNG, JPEG, WEBP" in refused(ask(url, asking(image(data(b"%!PS-Adobe-3.0 EPSF-3.0\n")))))
    assert "base64" in refused(ask(url, asking(image("data:image/svg+xml,<svg/>"))))
    assert "8 MB" in refused(ask(url, asking(image(data(bytes(9_000_000))))), 413)
    assert "larger than" in refused(ask(url, asking(text("x" * 33_000_000))), 413)
    assert "16 pictures; at most 15" in refused(ask(url, asking(*[image(data(picture(8, 8)))] * 16)))


@pytest.mark.parametrize("field", ["mm_processor_kwargs", "media_io_kwargs", "chat_template"])
def test_a_request_does_not_change_how_requests_are_read(url: str, field: str) -> None:
    """``min_pixels`` of a request would have a picture of one pixel made a hundred megapixels."""
    assert field in refused(ask(url, {**asking(text("x")), field: {"min_pixels": 10**9}}))


@pytest.mark.parametrize("name", ["tiny:../../other", "../tiny", "tiny:a/b", "tiny:..", "tiny:\x00", "tiny:a:b", "", 7])
def test_names_with_path_tricks_are_refused(url: str, name: Any) -> None:
    assert "no model's name" in refused(ask(url, asking(text("x"), model=name)))


def test_the_list_of_models_takes_no_path_tricks_either_and_finds_two_dashes(url: str) -> None:
    for name in ("tiny:..%2F..%2Fother", "%2Fetc%2Fpasswd", "tiny:a%5Cb"):
        refused(requests.get(f"{url}/v1/models/{name}", timeout=60))
    # Ray makes a slash of two dashes, which the name of a run may have.
    assert "a--b" in refused(requests.get(f"{url}/v1/models/a--b", timeout=60), 404)


def test_errors_are_in_openai_s_words_and_say_nothing_of_the_inside(url: str) -> None:
    message = refused(ask(url, asking(text("too long"))))
    assert message == "the prompt is longer than the maximum model length of 2048; it"
    assert "request" in refused(ask(url, asking(text("broken"))), 500)
    assert "nobody" in refused(ask(url, asking(text("x"), model="nobody")), 404)
    assert "temperature" in refused(ask(url, asking(text("x"), temperature="warm")))
    refused(ask(url, {"model": "tiny", "messages": [{"role": "user", "content": 7}]}))
    refused(requests.post(f"{url}/v1/chat/completions", data="{", timeout=60))
    refused(requests.post(f"{url}/v1/chat/completions", data="[" * 100_000, timeout=60))
    refused(requests.get(f"{url}/nowhere", timeout=60), 404)
    refused(requests.get(f"{url}/v1/chat/completions", timeout=60), 405)


def test_the_flow_s_client_reads_the_refusals(url: str) -> None:
    with ChatEndpoint(url) as client:
        with pytest.raises(ContextExceeded):
            client.chat("tiny", asking(text("too long"))["messages"], max_tokens=4)
        with pytest.raises(EndpointFailed, match="must be sent as data:"):
            client.chat("tiny", asking(image("http://127.0.0.1/"))["messages"], max_tokens=4)


def test_more_clients_than_it_can_serve_are_told_so_at_once_and_the_others_are_answered(url: str) -> None:
    def one(number: int) -> tuple[requests.Response, float]:
        began_s = time.monotonic()
        return ask(url, asking(text("takes long"))), time.monotonic() - began_s

    # Four times what the replica takes.
    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(one, range(16)))
    served = [answer for answer, _ in answers if answer.status_code == 200]
    sent_away = [(answer, took_s) for answer, took_s in answers if answer.status_code != 200]
    assert len(served) >= 6, "four in the replica, two before it"
    assert len(sent_away) >= 4
    for answer, took_s in sent_away:
        assert refused(answer, 503).startswith("the endpoint cannot take more requests now; try again")
        assert answer.json()["error"]["code"] == "overloaded"
        assert took_s < LONG_S, "no queue without an end"
    assert ask(url, asking(text("hello"))).status_code == 200


def test_only_what_the_model_does_has_an_address_and_no_web_page_may_ask(url: str) -> None:
    for path in ("/docs", "/openapi.json", "/v1/embeddings", "/v1/audio/transcriptions", "/v1/score"):
        refused(requests.get(f"{url}{path}", timeout=60), 404)
    answer = requests.get(f"{url}/v1/models/tiny", headers={"Origin": "https://elsewhere.example"}, timeout=60)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_with_a_key_in_its_environment_the_endpoint_answers_only_who_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="d-") as folder:
        with endpoint(Path(folder), **{API_KEY_VARIABLE: KEY}) as url:
            assert "API key" in refused(ask(url, asking(text("up"))), 401)
            assert "API key" in refused(ask(url, asking(text("up")), Authorization="Bearer other"), 401)
            assert "API key" in refused(requests.get(f"{url}/v1/models/tiny", timeout=60), 401)
            assert ask(url, asking(text("up")), Authorization=f"Bearer {KEY}").status_code == 200
            monkeypatch.setenv(API_KEY_VARIABLE, KEY)
            with ChatEndpoint(url) as client:
                assert client.chat("tiny", asking(text("up"))["messages"], max_tokens=4).text == "up"
        found = subprocess.run(["grep", "-rl", "--binary-files=text", KEY, folder], capture_output=True, text=True)
        assert found.stdout == ""
