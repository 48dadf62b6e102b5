"""Where hooks log to."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from runhooks.hooks.global_step import engine_of

_LOG = logging.getLogger("runhooks")


class Log(Protocol):
    """What a hook asks of a logger."""

    def info(self, msg: str, *args: Any) -> None: ...

    def warning(self, msg: str, *args: Any) -> None: ...

    def error(self, msg: str, *args: Any) -> None: ...


def log_of(source: Any) -> Log:
    """The logger of the framework that has made a graph, if it has one; else ``runhooks``.

    ``source``: a graph, a session of one, or None.
    Whoever has told TensorFlow how much it is to say has told its hooks.
    """
    log: Log = getattr(engine_of(source), "log", _LOG)
    return log
