"""``CallableRun``: a run that a callable of a session makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import is_
from typing import Any

import tensorflow as tf

from runhooks.contract import PreparedRun
from runhooks.engines.tensorflow.fetches import DirectRun
from runhooks.engines.tensorflow.session_state import SessionState
from runhooks.engines.tensorflow.step_graph import UNCHANGED, StepChange


class CallableRun(PreparedRun):
    """A run of ``fetches`` in ``session``.

    Args:
        fetches: What is asked for.
        feed_keys: The keys of the feed_dict.
        session: The session, which learns the global step and counts the run.
        change: What the run does to the global step; None if that is not known.
        direct: How its feeds are converted, and its result read.
        call: Takes the feeds, and returns what was fetched.
        step_of: Takes what was fetched, and returns the values of the global step that are in it;
            None if there are none.
    """

    __slots__ = (
        *("_call", "_convert", "_increases", "_keys", "_read", "_session", "_step_of"),
        "_tells_step",
    )

    def __init__(
        self,
        fetches: Any,
        feed_keys: Iterable[Any],
        session: SessionState,
        change: StepChange | None,
        direct: DirectRun,
        call: Callable[..., Any],
        step_of: Callable[[Any], Any] | None,
    ) -> None:
        keys = tuple(feed_keys)
        super().__init__(fetches, keys)
        if isinstance(fetches, tf.Tensor | tf.Operation):
            self.fetches = fetches
        self._keys = keys
        self._session = session
        self._convert, self._read = direct.convert, direct.read
        self._call = call
        self._step_of = step_of
        self._tells_step = change is not UNCHANGED or step_of is not None
        self._increases = change is not None and change.never_decreases
        # Where others may change the step, or the run does not say by how much it does, each run
        # has to be followed by a look at what is due.
        increase = None if change is None or session.is_shared else change.increase
        self.steps = -1 if increase is None else increase

    def is_fed(self, feed_dict: Any) -> bool:
        """As ``PreparedRun.is_fed``; tensors cannot be compared, and their hash takes a while."""
        keys = self._keys
        if not feed_dict:
            return not keys
        is_fed = type(feed_dict) is dict and len(feed_dict) == len(keys)
        return is_fed and all(map(is_, feed_dict, keys))

    def foresee(self, off_steps: float) -> None:
        """As ``PreparedRun.foresee``."""
        if self.steps >= 0:
            self._session.foresee(self, off_steps)

    def again(self, feed_dict: Any) -> Any:
        """Make the run, and return the values of the fetches. An off-step is as fast as this is."""
        session, convert = self._session, self._convert
        number = session.begin_change() if self._tells_step else 0
        values: Any = None
        try:
            if convert:
                values = self._call(*[to_array(feed_dict[key]) for key, to_array in convert])
            else:
                values = self._call()
        except BaseException as error:
            self.off_steps = 0
            session.note_error(error)
            raise
        finally:
            if number:
                steps = None if values is None or self._step_of is None else self._step_of(values)
                session.end_change(number, steps, self, increases=self._increases)
        session.runs += 1
        self.off_steps -= 1
        return self._read(values)
