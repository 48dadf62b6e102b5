"""``FeedFnHook``: feeds every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runhooks import arguments
from runhooks.contract import SessionRunArgs, SessionRunContext, SessionRunHook


class FeedFnHook(SessionRunHook):
    """Feeds each run the dict that ``feed_fn()`` returns.

    As in ``tf.compat.v1.train``. If ``feed_fn`` raises StopIteration, a monitored loop ends
    normally.

        hooks = [rh.FeedFnHook(lambda: {"rate": 0.1})]

    Args:
        feed_fn: Returns a dict of values by tensor; called before each run.

    Raises:
        TypeError: If ``feed_fn`` is not a function.
    """

    def __init__(self, feed_fn: Callable[[], Mapping[Any, Any]]) -> None:
        arguments.given(feed_fn=feed_fn)
        arguments.function(feed_fn=feed_fn)
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        return SessionRunArgs(fetches=None, feed_dict=self.feed_fn())
