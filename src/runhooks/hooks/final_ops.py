"""``FinalOpsHook``: fetches values when the loop has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runhooks import arguments
from runhooks.contract import RawSession, SessionRunHook, StopSignal
from runhooks.engines.foreign import graph_of
from runhooks.errors import good_ends
from runhooks.hooks.helpers.base import log_of


class FinalOpsHook(SessionRunHook):
    """Fetches ``final_ops`` at the end; ``final_ops_values`` then has their values.

    As in ``tf.compat.v1.train``.

        at_end = rh.FinalOpsHook({"accuracy": accuracy})
        hooks = [at_end]  # after the loop: at_end.final_ops_values["accuracy"]

    Args:
        final_ops: Anything that ``session.run`` takes; None: nothing. They must not draw from an
            input that may be exhausted: OutOfRangeError and StopIteration are then raised again,
            after a warning.
        final_ops_feed_dict: Values by tensor.

    Raises:
        ValueError, TypeError: When a session is created, for what cannot be fetched or fed.
    """

    def __init__(
        self, final_ops: Any, final_ops_feed_dict: Mapping[Any, Any] | None = None
    ) -> None:
        arguments.instance(Mapping, final_ops_feed_dict=final_ops_feed_dict)
        self._final_ops = final_ops
        self._final_ops_feed_dict = final_ops_feed_dict
        self._final_ops_values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The values, in the structure of ``final_ops``; None until the loop has ended normally."""
        return self._final_ops_values

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        # A mistake is reported now, not when the training is over.
        if self._final_ops is not None:
            graph_of(session.graph).check_run(self._final_ops, self._final_ops_feed_dict or ())

    def end(self, session: RawSession) -> None:
        if self._final_ops is None:
            return
        try:
            self._final_ops_values = session.run(self._final_ops, self._final_ops_feed_dict)
        except good_ends() as error:
            log_of(session).warning(
                "FinalOpsHook could not compute final_ops: %s. They have a dependency back to some "
                "input source, which may be exhausted at the end of the loop: let them depend on "
                "variables alone, or feed them",
                error,
            )
            raise
