"""Default names: one of each flow run's own, whatever second it was scheduled for."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

import flows.names
from flows.names import default_name

# UUID 7, as Prefect makes them: made in one millisecond, they begin alike.
IDS = ["019ad5c2-7b1e-7c3a-9d52-0f6f7a1c2b3d", "019ad5c2-7b1e-7c3a-9d52-0f6f9e8d7c6b"]
SECOND = datetime(2026, 11, 30, 2, 0, 0, tzinfo=UTC)


def name_in(monkeypatch: pytest.MonkeyPatch, flow_run_id: str, of: str) -> str:
    monkeypatch.setattr(flows.names, "flow_run", SimpleNamespace(id=flow_run_id, scheduled_start_time=SECOND))
    return default_name(of)


@pytest.mark.parametrize("of", ["evaluate", "base-model", "local-long"])
def test_flow_runs_of_one_second_have_names_of_their_own_and_keep_them_when_retried(
    monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    first, second, again = (name_in(monkeypatch, flow_run_id, of) for flow_run_id in (*IDS, IDS[0]))
    assert (first, second) == (f"{of}-20261130-020000-7a1c2b3d", f"{of}-20261130-020000-9e8d7c6b")
    assert first == again
