"""``FinalOpsHook``: fetches something when the loop has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runhooks import arguments
from runhooks.contract import RawSession, SessionRunHook, StopSignal
from runhooks.errors import good_ends
from runhooks.graph.graph import Graph
from runhooks.graph.plan import make_plan
from runhooks.hooks.log import log_of


class FinalOpsHook(SessionRunHook):
    """Fetches ``final_ops``, fed ``final_ops_feed_dict``, at the end: see ``final_ops_values``.

    ``final_ops``: whatever ``session.run`` takes; None: nothing. They must not draw from an input
    that may be at its end: OutOfRangeError and StopIteration are logged, with that advice, and
    raised. As in ``tf.compat.v1.train``. When a session is made, ValueError or TypeError is raised
    for what cannot be fetched or fed.
    """

    def __init__(
        self, final_ops: Any, final_ops_feed_dict: Mapping[Any, Any] | None = None
    ) -> None:
        arguments.instance(Mapping, final_ops_feed_dict=final_ops_feed_dict)
        self._final_ops = final_ops
        self._feed_dict = final_ops_feed_dict
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The values of ``final_ops``, in their shape; None until the loop has ended well."""
        return self._values

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        # A mistake is told now, not when all is done.
        if self._final_ops is not None and isinstance(session.graph, Graph):
            make_plan(session.graph, self._final_ops, self._feed_dict or ())

    def end(self, session: RawSession) -> None:
        if self._final_ops is None:
            return
        try:
            self._values = session.run(self._final_ops, self._feed_dict)
        except good_ends() as error:
            log_of(session).warning(
                "final_ops of FinalOpsHook could not be computed: %s. They have a dependency back "
                "to some input source, which may have no further element at the end of the loop: "
                "let them depend on variables alone, or feed them",
                error,
            )
            raise
