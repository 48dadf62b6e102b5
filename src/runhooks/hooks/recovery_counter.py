"""``RecoveryCounterHook``: counts how often a session was recovered."""

from __future__ import annotations

import os

from runhooks import arguments
from runhooks.contract import RawSession, SessionRunHook, StopSignal
from runhooks.engines.foreign import session_of
from runhooks.hooks.helpers.session import required_global_step, step_of
from runhooks.hooks.helpers.summary_output import SummaryOutput, SummaryWriter
from runhooks.summary import Summary, scalar_value


class RecoveryCounterHook(SessionRunHook):
    """Writes the number of recoveries after each recovery, under the tag ``recoveries``.

    The value is written at the first step after the recovery.

        hooks = [rh.RecoveryCounterHook(output_dir="runs/a")]

    Args:
        output_dir: The directory to write to if ``summary_writer`` is None.
        summary_writer: The writer to write with.

    Raises:
        ValueError: If neither is given.
    """

    runs_on = "chief"

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        arguments.at_least_one(output_dir=output_dir, summary_writer=summary_writer)
        self._output = SummaryOutput(output_dir, summary_writer)

    def begin(self) -> None:
        required_global_step(self)
        self._output.open(on_each_rank=self.runs_on == "all")

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._output.start(session)
        recoveries = session_of(session).recoveries
        if recoveries > 0:
            summary = Summary([scalar_value("recoveries", recoveries)])
            self._output.add_summary(summary, step_of(session) + 1)

    def end(self, session: RawSession) -> None:
        self._output.flush()
