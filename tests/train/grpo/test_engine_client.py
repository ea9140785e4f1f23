"""Pictures travel once, and again only when the engine asks."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from rl.grpo.rollouts.engine_client import Pictures, PicturesOnce


class FakeEngine:
    """Keeps pictures by hash, refuses as vLLM does when one without data is not kept, and records what was sent."""

    def __init__(self) -> None:
        self.kept: set[str] = set()
        self.sent: list[tuple[str, list[str]]] = []
        self.status_of_refusal = 500

    async def generate(self, **request: Any) -> Any:
        features = request["mm_features"]
        pairs = list(zip(features["mm_hashes"]["image"], features["kwargs_data"]["image"], strict=True))
        self.sent.append((request["session_id"], [hash_ for hash_, data in pairs if data is not None]))
        if any(data is None and hash_ not in self.kept for hash_, data in pairs):
            info = SimpleNamespace(real_url="http://engine")
            raise aiohttp.ClientResponseError(info, (), status=self.status_of_refusal)  # type: ignore[arg-type]
        self.kept |= {hash_ for hash_, _ in pairs}
        return "reply"


def pictures(*hashes: str) -> Pictures:
    return {"mm_hashes": list(hashes), "mm_placeholders": [{}] * len(hashes), "kwargs_data": [h + "!" for h in hashes]}


def play(client: PicturesOnce, session_id: str, *hashes: str) -> Any:
    return asyncio.run(client.generate(session_id=session_id, pictures=pictures(*hashes), model="m"))


def test_a_later_turn_sends_only_the_new_picture() -> None:
    engine = FakeEngine()
    client = PicturesOnce(engine, num_engines=1)
    for turn in range(1, 4):
        assert play(client, "s", *"abc"[:turn]) == "reply"
    assert engine.sent == [("s", ["a"]), ("s", ["b"]), ("s", ["c"])]


def test_one_engine_knows_what_other_sessions_sent_several_do_not() -> None:
    for num_engines, second in ((1, []), (6, ["a"])):
        engine = FakeEngine()
        client = PicturesOnce(engine, num_engines)
        play(client, "s", "a")
        play(client, "t", "a")
        assert engine.sent == [("s", ["a"]), ("t", second)]


def test_an_engine_that_let_go_of_a_picture_gets_all_of_them_again() -> None:
    engine = FakeEngine()
    client = PicturesOnce(engine, num_engines=1)
    play(client, "s", "a", "b")
    engine.kept.clear()
    assert play(client, "s", "a", "b", "c") == "reply"
    assert [sent for _, sent in engine.sent] == [["a", "b"], ["c"], ["a", "b", "c"]]
    assert client.num_refused == 1


def test_other_errors_and_a_refusal_of_a_whole_request_are_the_callers() -> None:
    engine = FakeEngine()
    client = PicturesOnce(engine, num_engines=1)
    play(client, "s", "a")
    engine.kept.clear()
    engine.status_of_refusal = 400
    with pytest.raises(aiohttp.ClientResponseError):
        play(client, "s", "a", "b")
    assert client.num_refused == 0


def test_a_new_batch_starts_from_nothing_sent() -> None:
    engine = FakeEngine()
    client = PicturesOnce(engine, num_engines=1)
    play(client, "s", "a")
    client.forget()
    play(client, "s", "a")
    assert [sent for _, sent in engine.sent] == [["a"], ["a"]]


def test_a_session_that_ended_takes_its_pictures_along_where_there_are_several_engines() -> None:
    engine = FakeEngine()
    client = PicturesOnce(engine, num_engines=6)
    play(client, "s", "a")
    client.forget("s")
    play(client, "s", "a")
    assert [sent for _, sent in engine.sent] == [["a"], ["a"]]


def test_the_pinned_vllm_refuses_what_it_does_not_keep_and_renders_past_its_cache() -> None:
    from vllm.entrypoints.scale_out.render import serving
    from vllm.multimodal.cache import MultiModalCacheMissError, MultiModalReceiverCache

    config: Any = SimpleNamespace(get_multimodal_config=lambda: SimpleNamespace(mm_processor_cache_gb=1))
    with pytest.raises(MultiModalCacheMissError, match="should be retried with the multi-modal data attached"):
        MultiModalReceiverCache(config).get_and_update_item(None, "a")
    # Otherwise a rendered picture that the cache holds would come without its pixels, which training needs.
    source = inspect.getsource(serving)
    assert source.count("skip_mm_cache=True") >= 3
    assert "skip_mm_cache=False" not in source
