"""``show_log``: lines of the log on stderr, for a program that has configured no logging."""

from __future__ import annotations

import logging
import sys
import threading

_log = logging.getLogger("runhooks")
_lock = threading.Lock()


class _PlainLines(logging.Handler):
    """Writes to the present ``sys.stderr``, until the program has handlers."""

    sets_level = False  # of the log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:  # noqa: BLE001 - as all handlers: a log must not end a training
            self.handleError(record)


_PLAIN_LINES = _PlainLines()


def show_log() -> None:
    """Show INFO lines unless logging is set up."""
    with _lock:
        if _PLAIN_LINES not in _log.handlers and not _is_configured():
            _log.addHandler(_PLAIN_LINES)
            _log.addFilter(_step_aside)
            if _log.level == logging.NOTSET:
                _log.setLevel(logging.INFO)
                _PLAIN_LINES.sets_level = True


def _is_configured() -> bool:
    others = [it for it in _log.handlers if it is not _PLAIN_LINES]
    return bool(others or logging.getLogger().handlers or not _log.propagate)


def _step_aside(record: logging.LogRecord) -> bool:
    """Take the handler away once there are others; asked about a record before they are."""
    if not _is_configured():
        return True
    with _lock:
        _log.removeHandler(_PLAIN_LINES)
        _log.removeFilter(_step_aside)
        if _PLAIN_LINES.sets_level and _log.level == logging.INFO:
            _log.setLevel(logging.NOTSET)
        _PLAIN_LINES.sets_level = False
    return record.levelno >= _log.getEffectiveLevel()
