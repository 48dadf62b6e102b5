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

#: Looks for the answer within the limit: a process that was stopped itself has missed only one.
_LOOKS = 10


class Requests:
    """Asks a store in one thread, for all others.

    A request has no end if the host of the store is frozen, or the network drops what is sent. So
    nobody but this thread waits for the store itself. Once an answer has not come in time, the
    store is lost: it is asked no more.
    """

    def __init__(self) -> None:
        self._lost: str | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._asked: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], Any] | None]
        self._asked = queue.SimpleQueue()

    def answer(self, secs: float, act: Callable[..., _T], *args: Any) -> _T:
        """Return ``act(*args)``, which asks the store.

        Args:
            secs: How many seconds the store has to answer.
            act: Called in the thread of the requests.
            args: Its arguments.

        Raises:
            UnavailableError: If there is no answer in that time, or was none before.
            Exception: Whatever ``act`` raises.
        """
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_work, args=(self._asked,), name="runhooks-rank-requests", daemon=True
                )
                self._thread.start()
                weakref.finalize(self, self._asked.put, None)
        answer: Future[_T] = Future()
        if self._lost is None:
            self._asked.put((answer, act, args))
        for _ in range(_LOOKS):
            if self._lost is not None:
                raise UnavailableError(self._lost)
            try:
                answer.exception(secs / _LOOKS)
            except TimeoutError:
                continue
            return answer.result()
        self._lost = (
            f"the store of the ranks has not answered for {secs:g} seconds: its host, rank 0 or "
            "the launcher, may be frozen or cut off"
        )
        raise UnavailableError(self._lost)


def _work(asked: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], Any] | None]) -> None:
    while (request := asked.get()) is not None:
        answer, act, args = request
        try:
            answer.set_result(act(*args))
        except BaseException as error:  # noqa: BLE001 - whoever asks raises it
            answer.set_exception(error)
        del request, answer, act, args  # the group may end while this waits
