"""``FeedFnHook``: feeds every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runhooks import arguments
from runhooks.contract import SessionRunArgs, SessionRunContext, SessionRunHook


class FeedFnHook(SessionRunHook):
    """Feeds each run what ``feed_fn()`` returns, a dict of values by tensor.

    As in ``tf.compat.v1.train``. A StopIteration out of it ends a monitored loop well. Raises
    TypeError if it cannot be called.
    """

    def __init__(self, feed_fn: Callable[[], Mapping[Any, Any]]) -> None:
        arguments.given(feed_fn=feed_fn)
        arguments.function(feed_fn=feed_fn)
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        return SessionRunArgs(fetches=None, feed_dict=self.feed_fn())
