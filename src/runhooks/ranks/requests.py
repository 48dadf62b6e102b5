"""``Requests``: what the threads of a rank ask of a store, each answered within a limit."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from runhooks.errors import UnavailableError

_T = TypeVar("_T")

#: Looks for an answer within the limit: a process that was stopped itself has missed only one.
_LOOKS = 10


class Requests:
    """Asks a store in one thread, for all others.

    A request has no end if the host of the store is frozen, or the network drops what is sent. So
    nobody but this thread waits for the store itself. Once no answer to anyone has come in time,
    the store is lost: it is asked no more.

    No lock is held, as the collector may drop a session, which tells of it, wherever it runs.
    """

    def __init__(self) -> None:
        self._lost: str | None = None
        self._lines: list[_Line] = []  # of which the first is used

    def answer(self, secs: float, act: Callable[..., _T], *args: Any) -> _T:
        """Return ``act(*args)``, which asks the store.

        Args:
            secs: How many seconds the store has for an answer, to this request or to one before.
            act: Called in the thread of the requests.
            args: Its arguments.

        Raises:
            UnavailableError: If there is no answer in that time, or was none before, or no thread
                can be started.
            Exception: Whatever ``act`` raises.
        """
        line = self._lines[0] if self._lines else self._started()
        if threading.get_ident() == line.thread:
            return act(*args)
        answer: Future[_T] = Future()
        if self._lost is None:
            line.asked.put((answer, act, args))
        looks, answered = 0, line.answered
        while looks < _LOOKS:
            if self._lost is not None:
                raise UnavailableError(self._lost)
            try:
                answer.exception(secs / _LOOKS)
            except TimeoutError:
                # A store that answers others is slow, or has much to do, but is there.
                looks, answered = (looks + 1 if line.answered == answered else 0), line.answered
                continue
            return answer.result()
        self._lost = (
            f"the store of the ranks has not answered for {secs:g} seconds: its host, rank 0 or "
            "the launcher, may be frozen or cut off"
        )
        raise UnavailableError(self._lost)

    def _started(self) -> _Line:
        line = _Line()
        thread = threading.Thread(target=line.work, name="runhooks-rank-requests", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise UnavailableError(
                f"no thread can be started that asks the store of the ranks: {error}"
            ) from error
        # Of two threads that come here at once, the line of one is used by both.
        self._lines.append(line)
        if (first := self._lines[0]) is line:
            weakref.finalize(self, line.asked.put, None).atexit = False  # what exits may ask, too
        else:
            line.asked.put(None)
        return first


class _Line:
    """The requests that wait, and the thread that makes them."""

    def __init__(self) -> None:
        self.asked: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], Any] | None]
        self.asked = queue.SimpleQueue()
        self.answered = 0
        self.thread = 0

    def work(self) -> None:
        """Make the requests until there is None."""
        self.thread = threading.get_ident()
        while (request := self.asked.get()) is not None:
            answer, act, args = request
            try:
                answer.set_result(act(*args))
            except BaseException as error:  # noqa: BLE001 - whoever asks raises it
                answer.set_exception(error)
            self.answered += 1
            del request, answer, act, args  # the group may end while this waits
