"""What the served endpoint does on this machine: ``python -m bench.serving``, after a run has served its adapter.

Publishes the last run's adapter under new names and asks for it, then asks base and adapter in turns with 32 chats
under way. Writes ``.local/bench/serving.json``.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import boto3
import psutil

from flows.deployments import load_settings
from flows.settings.retrain import RetrainSettings
from rl.proof.questions import Conversation, probe_conversations
from serving.app import adapter_model_id, serve_document
from serving.publish import AdapterStore, PublishJob, publish
from tasks.clients.serve_rest import ServeRest
from tasks.release.openai_chat import ChatEndpoint

NUM_CONCURRENT, NUM_CHATS, NUM_ROUNDS = 32, 256, 3


def spread(values: Sequence[float]) -> dict[str, float]:
    """Smallest, middle and largest."""
    return {
        "min": round(min(values), 2),
        "median": round(statistics.median(values), 2),
        "max": round(max(values), 2),
    }


def publish_to_first_token_s(settings: RetrainSettings, report: dict[str, Any], number: int) -> float:
    """Seconds from the start of publishing to the first answer under the new name."""
    server = settings.serve.server
    order = PublishJob(
        adapter_dir=report["best"]["export_path"],
        base_dir=settings.train.model_path,
        adapters_uri=server.adapters_uri,
        adapter_name=f"bench-{time.time_ns()}-{number}",
        max_lora_rank=server.max_lora_rank,
        serves_tower_lora=False,
        run_name="bench",
        step=report["best"]["step"],
        num_solved=report["best"]["solved"],
        num_mazes=report["eval_set"]["num_mazes"],
        eval_set_sha256=report["eval_set"]["sha256"],
        mlflow_run_id=report["mlflow"]["child_run_id"],
    )
    question = next(probe_conversations(settings.questions))
    s3 = boto3.client("s3")
    started = time.monotonic()
    try:
        publish(order, s3)
        ChatEndpoint(settings.serve.url).chat(adapter_model_id(server, order.adapter_name), question, max_tokens=1)
        return time.monotonic() - started
    finally:
        AdapterStore(s3, server.adapters_uri, order.adapter_name).remove()


def chats_per_s(url: str, model: str, questions: Sequence[Conversation], max_tokens: int) -> float:
    """Whole chats of one to four pictures answered per second, NUM_CONCURRENT at a time."""

    def ask(question: Conversation) -> None:
        ChatEndpoint(url).chat(model, question, max_tokens)

    started = time.monotonic()
    with ThreadPoolExecutor(NUM_CONCURRENT) as pool:
        list(pool.map(ask, questions))
    return len(questions) / (time.monotonic() - started)


def serving_memory_gb(state: Path) -> float:
    """Memory of the serving Ray head and everything under it; pages that processes share count once."""
    head = psutil.Process(json.loads((state / "services" / "serve.json").read_text())["pid"])
    family: list[Any] = [head, *head.children(recursive=True)]
    return sum(process.memory_full_info().pss for process in family) / 1e9


def measure(settings: RetrainSettings, report: dict[str, Any], say: Callable[[str], object]) -> dict[str, Any]:
    """All figures of one pass."""
    first_token_s = [publish_to_first_token_s(settings, report, number) for number in range(NUM_ROUNDS)]
    say(f"publish to first token: {spread(first_token_s)} s")
    models = {name: report["served"][f"{name}_model_id"] for name in ("base", "adapter")}
    rates: dict[str, list[float]] = {name: [] for name in models}
    # Other mazes every time: what was asked before lies in the engine's caches.
    fresh = probe_conversations(
        settings.questions.model_copy(update={"num_probes": NUM_CHATS * NUM_ROUNDS * len(models)})
    )
    for _ in range(NUM_ROUNDS):
        for name, model in models.items():
            questions = list(islice(fresh, NUM_CHATS))
            rates[name].append(chats_per_s(settings.serve.url, model, questions, settings.play.max_reply_tokens))
            say(f"{name}: {rates[name][-1]:.1f} chats/s")
    return {
        "date": date.today().isoformat(),
        "machine": f"{psutil.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.machine()}",
        "num_concurrent": NUM_CONCURRENT,
        "publish_to_first_token_s": spread(first_token_s),
        "chats_per_s": {name: spread(values) for name, values in rates.items()},
        "serving_memory_gb": round(serving_memory_gb(Path(".local")), 2),
    }


def main() -> None:
    settings = load_settings("retrain/local", {})
    report = json.loads((Path(settings.report.reports_dir) / "latest.json").read_text())
    serve = settings.serve
    ServeRest(serve.dashboard, print).ensure(serve_document(serve.server), serve.timeout_s)
    found = measure(settings, report, print)
    out = Path(".local/bench/serving.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
