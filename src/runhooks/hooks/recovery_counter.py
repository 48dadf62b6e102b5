"""``RecoveryCounterHook``: how often a session was recovered."""

from __future__ import annotations

import os
from typing import ClassVar

from runhooks.contract import RawSession, SessionRunHook, StopSignal
from runhooks.hooks.global_step import required_global_step, step_of
from runhooks.hooks.summary_output import SummaryOutput, SummaryWriter
from runhooks.summary import Summary, scalar_value


class RecoveryCounterHook(SessionRunHook):
    """Writes after each recovery how many there were so far, under the tag ``recoveries``.

    The value stands at the first step that is made after the recovery. ``output_dir``: the
    directory to write to if no ``summary_writer`` is given; with neither nothing is written.
    """

    # At a START that comes later TensorBoard would drop the value, which is of the same step.
    last: ClassVar[bool] = True

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        self._output = SummaryOutput(output_dir, summary_writer)

    def begin(self) -> None:
        required_global_step(self)
        self._output.open()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._output.start(session)
        recoveries: int = getattr(session, "recoveries", 0)
        if recoveries > 0:
            summary = Summary([scalar_value("recoveries", recoveries)])
            self._output.add_summary(summary, step_of(session) + 1)

    def end(self, session: RawSession) -> None:
        self._output.flush()
