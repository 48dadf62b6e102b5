"""``end``: how a monitored session ends, well or because of an error, alone or with other ranks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from runhooks.contract import RawSession, StopRequest
from runhooks.errors import described, good_ends
from runhooks.session.agreement import Agreement
from runhooks.session.hook_list import HookList, caught, raise_first, thread_failure
from runhooks.session.recoverable import RecoverableSession

_log = logging.getLogger("runhooks")


def is_good_end(
    error: BaseException,
    session: RecoverableSession | None,
    stop: StopRequest,
    agreement: Agreement | None,
) -> bool:
    """Return whether a loop that ``error`` has ended was at its end, and is to be saved.

    Besides the end of the data, that is an input which fails before a step begins, after a stop was
    requested: a signal to the process group also ends the workers of a loader. An error that means
    the session is lost is not: the steps since the last checkpoint may be missing.
    """
    if isinstance(error, good_ends()):
        return True
    inner = None if session is None else session.session
    raw = None if inner is None else inner.raw
    if raw is None or raw.input_error is not error or raw.engine.is_lost(error):
        return False
    if stop.reason is None or agreement is not None:  # other ranks may be in this step
        return False
    _log.warning("after %s, an input has failed: %s", stop.reason, described(error))
    return True


def end(
    session: RecoverableSession,
    error: BaseException | None,
    hooks: HookList,
    stop: StopRequest,
    agreement: Agreement | None,
) -> None:
    """End ``session``: call ``end`` of the hooks, or ``on_exception``, and close it.

    Args:
        session: What is to end.
        error: What has ended its loop; None: it ends well, if no thread has failed.
        hooks: Its hooks.
        stop: Asked to stop, with the reason.
        agreement: That with other ranks; None: there are none.

    Raises:
        BaseException: The first error other than ``error``, when all is done.
    """
    inner = session.session
    raw = None if inner is None else inner.raw
    outcome = error if error is not None else thread_failure(inner)
    outcome = _finish(raw, agreement) if outcome is None else blamed(outcome, agreement)
    reason = "close was called" if outcome is None else described(outcome)
    stop.ask((inner and inner.stop_reason) or reason)
    step = None if raw is None else raw.global_step
    errors = [] if outcome is None else [outcome]
    try:
        if outcome is None and raw is not None:
            errors += hooks.end(raw)
        else:
            hooks.on_exception(raw, outcome or RuntimeError("the session was lost"))
    finally:
        errors += [e for e in caught(session.close) if not isinstance(e, good_ends())]
        at_step = "" if step is None else f" at step {step}"
        _log.info("the session has ended%s: %s", at_step, stop.reason)
        errors += leave(errors, agreement)
    raise_first(errors, already=error)


def blamed(error: BaseException, agreement: Agreement | None) -> BaseException:
    """Return ``error``, or the failure of another rank that it is an effect of."""
    return error if agreement is None else agreement.blame(error)


def leave(errors: Sequence[BaseException], agreement: Agreement | None) -> list[BaseException]:
    """Leave the other ranks, because of the first of ``errors`` if there is one."""
    error = errors[0] if errors else None
    return [] if agreement is None else agreement.close(error)


def _finish(raw: RawSession | None, agreement: Agreement | None) -> BaseException | None:
    """Wait for the ends of all ranks; return the error that ends this one instead."""
    if agreement is None:
        return None
    step = None if raw is None else raw.global_step
    return next(iter(caught(partial(agreement.finish, step))), None)
