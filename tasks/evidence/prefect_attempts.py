"""Which flow runs work, or have worked, under a run's name: Prefect knows, and nobody else does."""

from __future__ import annotations

from httpx import HTTPError
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import PrefectHTTPStatusError
from prefect.runtime import flow_run

from tasks.errors import AttemptsUnknown
from tasks.run import Attempt

PAGE = 100


def own_flow_run_id() -> str:
    """The flow run that this happens in; empty outside of one."""
    return flow_run.id or ""


def attempts_of(run_name: str) -> tuple[Attempt, ...]:
    """Every flow run of this name: a flow run of `retrain` is named after its run. Raises AttemptsUnknown."""
    named, found = FlowRunFilter(name=FlowRunFilterName(any_=[run_name])), []
    try:
        with get_client(sync_client=True) as client:
            while True:
                page = client.read_flow_runs(flow_run_filter=named, limit=PAGE, offset=len(found))
                found += page
                if len(page) < PAGE:
                    return tuple(map(_attempt, found))
    except (HTTPError, PrefectHTTPStatusError) as error:
        raise AttemptsUnknown(
            f"Prefect does not say which flow runs work under {run_name} ({error}); start its server, then clean up "
            "again"
        ) from error


def _attempt(run: FlowRun) -> Attempt:
    began = run.start_time or run.expected_start_time or run.created
    assert began is not None
    return Attempt(
        flow_run_id=str(run.id),
        state=(run.state_name or "without a state").upper(),
        is_over=run.state is not None and run.state.is_final(),
        began=began,
    )
