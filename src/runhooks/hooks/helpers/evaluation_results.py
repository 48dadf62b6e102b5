"""The metrics of evaluations: ``Means`` over runs, and ``EvaluationResults`` to write them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from runhooks.arrays import to_numpy
from runhooks.contract import RawSession
from runhooks.graph.framework import Log
from runhooks.hooks.helpers.eval_metrics import EvalMetrics
from runhooks.hooks.helpers.session import log_of, step_of
from runhooks.hooks.helpers.summary_output import SummaryOutput, SummaryWriter
from runhooks.summary import Summary, Value, scalar_value

_log = logging.getLogger("runhooks")


class Means:
    """The mean of each metric over the runs of an evaluation, weighted if runs have a weight.

    A value is read when the next one arrives: the device computes that one meanwhile.

    Args:
        labels: The names of the metrics.
    """

    def __init__(self, labels: Iterable[str]) -> None:
        self._sums = dict.fromkeys(labels, 0.0)
        self._weight = 0.0
        self._unread: tuple[Mapping[str, Any], Any] | None = None

    def add(self, values: Mapping[str, Any], weight: Any = 1.0) -> None:
        """Add the values of one run, a single number each.

        Raises:
            ValueError, TypeError: If a value is not a single number.
        """
        self._read()
        self._unread = values, weight

    def means(self) -> dict[str, float]:
        """Return the means by label.

        Raises:
            ValueError: If all weights were 0.
        """
        self._read()
        if not self._weight:
            raise ValueError("weight was 0 in all runs: there is nothing to take the mean of")
        return {label: total / self._weight for label, total in self._sums.items()}

    def _read(self) -> None:
        if self._unread is None:
            return
        (values, given), self._unread = self._unread, None
        weight = number("weight", given)
        if weight < 0:
            raise ValueError(f"weight must not be negative, got {weight!r}")
        if weight:  # the mean of a batch without examples is NaN
            self._weight += weight
            for label in self._sums:
                self._sums[label] += weight * number(label, values[label])


def number(label: str, value: Any) -> float:
    """Return ``value`` as a float; raise ValueError or TypeError if it is not a single number."""
    array = np.asarray(to_numpy(value))  # NumPy cannot read a bfloat16 of torch
    if array.size != 1:
        raise ValueError(
            f"{label!r} must be a single number in each run of an evaluation, got an array of "
            f"shape {array.shape}"
        )
    try:
        return float(array.reshape(()))
    except TypeError:
        raise TypeError(f"{label!r} must be a real number, got {value!r}") from None


class EvaluationResults:
    """Writes and logs the metrics of one hook's evaluations, and keeps them by step.

    Those that are written to a directory are read from its files, so that a resumed run has them
    too. The others are kept in ``history``, which is for the hook's state.

    Args:
        output_dir: The directory to write to if ``summary_writer`` is None.
        summary_writer: The writer to write with.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        self._output = SummaryOutput(output_dir, summary_writer)
        written = summary_writer is None and output_dir is not None
        self._files = EvalMetrics(output_dir) if written and output_dir else None
        #: The global step of the last evaluation since the session started; None: there was none.
        self.step: int | None = None
        #: The metrics of that evaluation by tag.
        self.last: dict[str, float] = {}
        self._asked_for = False  # whether somebody asked for the metrics of exactly that step
        self._warned = False
        #: The metrics by tag, by step, unless they are in files.
        self.history: dict[int, dict[str, float]] = {}
        self._is_open = False
        self._log: Log = _log  # where the hooks of the session log

    def open(self) -> None:
        """Get the writer; for a hook's ``begin``."""
        self._output.open()
        self.history = {}
        self._is_open = True

    def _check_open(self) -> None:
        """Raise RuntimeError if the hook has never begun, and so will never evaluate."""
        if not self._is_open:
            raise RuntimeError(
                "the metrics of an evaluation hook were asked for, but no session has the hook: "
                "add it to the hooks of the session"
            )

    def start(self, session: RawSession) -> None:
        """Mark where a session starts; for a hook's ``after_create_session``."""
        self.step, self.last, last = None, {}, step_of(session)
        self._log = log_of(session)
        self.history = {step: it for step, it in self.history.items() if step <= last}
        self._output.start(session)
        self._output.flush()  # readers of the files drop the steps that are made again

    def record(
        self,
        name: str,
        step: int,
        metrics: Mapping[str, float],
        runs: int,
        secs: float,
        more: Iterable[Value] = (),
    ) -> None:
        """Write and log the metrics of an evaluation.

        Args:
            name: The name of the hook.
            step: The global step that was evaluated.
            metrics: The metrics by tag.
            runs: How many runs the evaluation took.
            secs: How many seconds it took.
            more: Values to write that are not single numbers.
        """
        self.step, self.last, self._asked_for = step, dict(metrics), False
        if self._files is None:
            self.history[step] = self.last
        values = [scalar_value(label, value) for label, value in metrics.items()]
        self._output.add_summary(Summary([*values, *more]), step)
        self._output.flush()
        line = ", ".join(f"{label} = {value:.6g}" for label, value in metrics.items())
        self._log.info("%s at step %d: %s (%d runs, %.3f sec)", name, step, line, runs, secs)

    def at(self, step: int | None) -> dict[str, float]:
        """Return the metrics by tag if they are those of exactly ``step``, else an empty dict.

        Raises:
            RuntimeError: If the hook has never begun.
        """
        self._check_open()
        if step == self.step:
            self._asked_for = True
            return dict(self.last)
        if step is not None and self.step is not None and step > self.step:
            self._warn_of_unused(step, self.step)
        return {}

    def _warn_of_unused(self, step: int, evaluated: int) -> None:
        """Warn, once, that a checkpoint of ``step`` has no metrics, and those known are in none."""
        if self._asked_for or self._warned:
            return
        self._warned = True
        self._log.warning(
            "the checkpoint of step %d has no number for %s, and those of the evaluation at step "
            "%d are in no checkpoint: KeepBest cannot keep it. Save at the steps of evaluations: "
            "give save_checkpoint_steps the steps between evaluations",
            step,
            ", ".join(map(repr, self.last)),
            evaluated,
        )

    def by_step(self) -> dict[int, dict[str, float]]:
        """Return the metrics by tag, by step, in the order of steps.

        Raises:
            RuntimeError: If the hook has never begun.
        """
        self._check_open()
        return dict(sorted(self.history.items())) if self._files is None else self._files.read()
