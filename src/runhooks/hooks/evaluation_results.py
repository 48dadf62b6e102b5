"""``EvaluationResults``: what an evaluation has found: written, logged, and kept for others."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping

from runhooks.contract import RawSession
from runhooks.hooks.summary_output import SummaryOutput, SummaryWriter
from runhooks.summary import Summary, Value, scalar_value

_log = logging.getLogger("runhooks")


class EvaluationResults:
    """The metrics of the last evaluation of one hook, each a scalar under its own name."""

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        self._output = SummaryOutput(output_dir, summary_writer)
        self._step: int | None = None
        self._metrics: dict[str, float] = {}
        self._is_open = False

    def open(self) -> None:
        """Get the writer; for a hook's ``begin``."""
        self._output.open()
        self._is_open = True

    def check_open(self) -> None:
        """Raise RuntimeError if the hook has never begun: nobody would ever evaluate."""
        if not self._is_open:
            raise RuntimeError(
                "the metrics of an evaluation hook were asked for that is in no session: give it "
                "to the session among its hooks"
            )

    def start(self, session: RawSession) -> None:
        """Mark where a session starts; for a hook's ``after_create_session``."""
        self._step, self._metrics = None, {}
        self._output.start(session)
        self._output.flush()  # for those who read along: what comes again does not count any more

    def record(
        self,
        name: str,
        step: int,
        metrics: Mapping[str, float],
        runs: int,
        secs: float,
        more: Iterable[Value] = (),
    ) -> None:
        """Write ``metrics``, found by ``name`` at ``step`` in so many runs and seconds.

        ``more``: what is to be written with them, and is no number.
        """
        self._step, self._metrics = step, dict(metrics)
        values = [scalar_value(label, value) for label, value in metrics.items()]
        self._output.add_summary(Summary([*values, *more]), step)
        self._output.flush()
        line = ", ".join(f"{label} = {value:.6g}" for label, value in metrics.items())
        _log.info("%s at step %d: %s (%d runs, %.3f sec)", name, step, line, runs, secs)

    def at(self, step: int | None) -> dict[str, float]:
        """The metrics by label if they were found at exactly ``step``, else none.

        Raises as ``check_open``.
        """
        self.check_open()
        return dict(self._metrics) if step == self._step else {}
