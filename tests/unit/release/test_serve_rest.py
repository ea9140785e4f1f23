"""Deploying over Ray Serve's REST API, against a server on loopback that walks through the states it was told."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable
from typing import Any

import pytest

from serving.app import serve_document
from tasks.clients.serve_rest import ServeRest
from tasks.errors import AddressTaken, ListensElsewhere, RolloutFailed
from tests.unit.release.endpoint_server import QUICK, Answer, http
from tests.unit.samples import SERVER

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
