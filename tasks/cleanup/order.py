"""After which attempt is cleaned up. A run's name outlives its flow runs: a late order must not hit a later one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.run import Attempt


@dataclass(frozen=True)
class Order:
    """A clean-up after one flow run of a run, or, by hand, after all of them."""

    flow_run_id: str = ""
    """The flow run that ended; empty for all of them."""
    attempts: Sequence[Attempt] = ()
    """Every flow run of the run's name that is known."""
    is_its_own: bool = False
    """Whether the flow run cleans up after itself, and so has not ended yet."""

    @property
    def overtaken(self) -> str:
        """Why nothing of the run's name may go: another flow run works under it, or has worked since."""
        if not self.flow_run_id:
            return ""
        ended = self._known(self.flow_run_id)
        for other in self.attempts:
            if other == ended:
                if not other.is_over and not self.is_its_own:
                    return f"flow run {other.flow_run_id} is {other.state} again"
            elif not other.is_over:
                return f"flow run {other.flow_run_id} is {other.state} under this name"
            elif ended and other.began > ended.began:
                return f"flow run {other.flow_run_id} came later: its own clean-up looks after it"
        return ""

    def keeps(self, owner: str) -> str:
        """Why a thing of this flow run stays; empty for the one that ended, and those before it that it took up."""
        if not self.flow_run_id or owner in ("", self.flow_run_id):
            return ""
        ended, known = self._known(self.flow_run_id), self._known(owner)
        if known and known.is_over and (ended is None or known.began <= ended.began):
            return ""
        return f"it belongs to flow run {owner}, not to {self.flow_run_id} that ended"

    def _known(self, flow_run_id: str) -> Attempt | None:
        return next((attempt for attempt in self.attempts if attempt.flow_run_id == flow_run_id), None)
