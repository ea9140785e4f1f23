"""Tables of runs, as text."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from rich.console import Console

from flows.cli.overview import flow_runs_under_way, running_line, runs_table, services_table, under_way
from tasks.clients.mlflow_history import PastRun


def past(name: str = "r", **changes: Any) -> PastRun:
    found = {
        "state": "FINISHED",
        "started_ms": 1764700000000,
        "ended_ms": 1764700886000,
        "params": {"train.grpo.max_steps": "16", "train.grpo.learning_rate": "0.001"},
        "metrics": {"trainer/global_step": 16.0, "best/solve_rate": 49 / 64, "best/solved": 49.0, "base/solved": 33.0},
        "decision": "promote",
    }
    return PastRun(name, **{**found, **changes})


def text(renderable: Any) -> list[str]:
    written = io.StringIO()
    Console(file=written, width=80).print(renderable)
    return [" ".join(line.split()) for line in written.getvalue().splitlines() if line.strip()]


def test_the_last_runs_are_a_line_each_within_eighty_columns() -> None:
    lines = text(
        runs_table([past("local-20261202-202200-0123abcd"), past("b", state="RUNNING", ended_ms=None, decision="")])
    )
    assert lines[0] == "run state began steps solved gate took"
    assert lines[2].startswith("local-20261202-202200-0123abcd finished")
    assert lines[2].endswith("16 77% promote 15 min")
    assert lines[3].startswith("b running")
    assert len(lines) == 4


def test_no_run_yet_says_how_to_make_one() -> None:
    assert text(runs_table([])) == ["no run yet; `maze-retrain run` makes one"]


def test_a_run_under_way_says_its_step_the_time_left_and_how_it_does() -> None:
    run = past(metrics={"trainer/global_step": 6.0, "timing/step": 31.0, "eval/solve_rate": 0.625})
    assert running_line(run, True) == "r: step 6 of 16, 5 min 10 s left in training, the last evaluation solved 62%"
    assert "its process is gone" in running_line(run, False)


@contextmanager
def prefect(names: list[str], asked: list[Any]) -> Iterator[str]:
    """Prefect's server: POST /flow_runs/filter (prefect/server/api/flow_runs.py)."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = json.dumps([{"name": name} for name in names]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api"
    finally:
        server.shutdown()
        server.server_close()


def test_a_run_that_mlflow_calls_running_and_prefect_does_not_know_is_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    with prefect(["a"], asked) as url:
        assert flow_runs_under_way(url) == {"a"}
        monkeypatch.setenv("PREFECT_API_URL", url)
        lines = under_way([past("a"), past("b")])
    assert ["process is gone" in line for line in lines] == [False, True]
    assert "RUNNING" in asked[0]["flow_runs"]["state"]["type"]["any_"]
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    assert not [line for line in under_way([past("a")]) if "gone" in line], "nobody says so"


def test_services_are_listed_whether_they_run_or_not() -> None:
    lines = text(services_table({"mlflow": 7}, {"MLFLOW_TRACKING_URI": "http://m"}))
    assert "mlflow runs, pid 7 http://m" in lines
    assert "prefect does not run" in lines
