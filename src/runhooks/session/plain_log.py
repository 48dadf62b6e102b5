"""``show_log``: lines of the log on stderr, for a program that has configured no logging.

What hooks log is for people to read, and Python drops lines of level INFO unless a handler is set
up. The handler here steps aside as soon as the program sets up its own, so that no line is shown
twice, or against the levels that the program has chosen.
"""

from __future__ import annotations

import logging
import sys
import threading

_log = logging.getLogger("runhooks")
_lock = threading.Lock()


def show_log() -> None:
    """Show what is logged from level INFO on as plain lines, if nothing else has been set up.

    That is, if neither the root logger nor ``"runhooks"`` has a handler. A level that the program
    has given the logger ``"runhooks"`` is left as it is.
    """
    with _lock:
        if not _is_configured():
            _log.addHandler(_HANDLER)
            _log.addFilter(_FILTER)
            if _log.level == logging.NOTSET:
                _log.setLevel(logging.INFO)
                _FILTER.sets_level = True


def _is_configured() -> bool:
    return bool(logging.getLogger().handlers or _log.handlers or not _log.propagate)


class _Lines(logging.Handler):
    """Writes to what ``sys.stderr`` is when a line comes."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:  # noqa: BLE001 - as all handlers: a log must not end a training
            self.handleError(record)


class _StepsAside(logging.Filter):
    """Asked about each record before any handler is: takes ours away once there are others."""

    #: Whether ``show_log`` has set the level.
    sets_level = False

    def filter(self, record: logging.LogRecord) -> bool:
        others = [it for it in _log.handlers if it is not _HANDLER]
        if not others and not logging.getLogger().handlers and _log.propagate:
            return True
        with _lock:
            _log.removeHandler(_HANDLER)
            _log.removeFilter(self)
            if self.sets_level and _log.level == logging.INFO:
                _log.setLevel(logging.NOTSET)
            self.sets_level = False
        return record.levelno >= _log.getEffectiveLevel()


_HANDLER = _Lines()
_FILTER = _StepsAside()
