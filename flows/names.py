"""Names that nobody chose: unique, and the same at every retry of a flow run."""

from __future__ import annotations

from prefect.runtime import flow_run

NUM_ID_DIGITS = 8


def default_name(of: str) -> str:
    """``<of>-<scheduled start>-<end of the flow run's id>``: two flow runs may be scheduled for the same second.

    The end of the id, because Prefect's ids (UUID 7) begin with the time.
    """
    return f"{of}-{flow_run.scheduled_start_time:%Y%m%d-%H%M%S}-{flow_run.id[-NUM_ID_DIGITS:]}"
