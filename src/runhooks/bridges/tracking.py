"""``TrackingHook``: numbers of a session to an experiment tracker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from runhooks.contract import RawSession
from runhooks.hooks.base import FetchingHook, acts_here
from runhooks.hooks.metrics import number
from runhooks.trigger import Trigger, timer_of


class TrackingHook(FetchingHook):
    """Fetches numbers at a cadence, and passes them to ``log`` with the global step.

    Of several ranks, each calls it; with ``chief_only_hooks``, the chief alone. Close the client
    yourself.

    Args:
        log: The tracker's own function, such as ``wandb_run.log``, called as ``log(numbers,
            step=step)`` with a dict by name.
        tensors: Tensors, or their names: a dict by the name to log them under, or a list. What is
            None, as the loss of a batch that Lightning skips, is left out.
        every_n_steps: Log at the multiples of this number.
        trigger: When to log.
        every_n_epochs: Log at the last step of every so many epochs.

    Raises:
        TypeError: If ``log`` cannot be called or ``tensors`` is neither a dict nor a list.
        ValueError: Unless exactly one cadence is given; in a run, for a value that is not a single
            number.
    """

    asks_on_all: ClassVar[bool] = True

    def __init__(
        self,
        log: Callable[..., Any],
        tensors: Mapping[str, Any] | Iterable[Any],
        every_n_steps: int | None = None,
        *,
        trigger: Trigger | None = None,
        every_n_epochs: float | None = None,
    ) -> None:
        if not callable(log):
            raise TypeError(f"log must be a function of numbers and a step, got {log!r}")
        timer = timer_of(trigger, every_n_steps=every_n_steps, every_n_epochs=every_n_epochs)
        super().__init__(timer, tensors)
        self._log = log

    def _take(self, session: RawSession, step: int, values: Any) -> None:
        if not acts_here(self):
            return
        labelled = self._tensors.labelled(values)
        if numbers := {name: number(name, it) for name, it in labelled if it is not None}:
            self._log(numbers, step=step)
