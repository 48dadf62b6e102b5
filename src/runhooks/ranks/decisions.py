"""``Decisions``: what all ranks of a group do before the same run, agreed beside their loops.

A rank *proposes* to rank 0, which tells all. Each freezes its loop between two runs, *then* reads
which run it has begun last, and tells rank 0. The decision holds before the run after the largest
of these: a loop may have begun one run since its number was read, but not two, as it looks at
``frozen`` after it has set ``begun``.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import logging
import math
import queue
import signal
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from runhooks import clock
from runhooks.errors import OpError
from runhooks.ranks.exchange import BYE, Exchange
from runhooks.ranks.group import Group

_log = logging.getLogger("runhooks")

STOP, _LOOP_ENDED = "stop", "loop ended"

_PROPOSE, _BEGUN = "propose", "begun"
_PROPOSED, _DECIDED = "proposed", "decided"

#: Looks for a sign of life in ``Group.silence_secs``.
BEATS = 10
_LEAVE_SECS = 5.0  # that a rank stays whose store others read
_ABORTED_SECS = 5.0  # that a loop has after an abort


class Decision(NamedTuple):
    """What all ranks do before ``run``, counted from 1, as ``rank`` has proposed."""

    run: int
    kind: str
    text: str
    rank: int


class Proposals:
    """What is proposed to rank 0: one is open until all have told what run they have begun."""

    def __init__(self, size: int, exchange: Exchange) -> None:
        self._size = size
        self._exchange = exchange
        self._waiting: deque[tuple[str, str, int]] = deque()
        self._number = 0  # of the one that is open, or was last
        self._is_open = self._is_stopping = False
        self._begun: dict[int, int] = {}
        self._fewest = math.inf  # runs of a loop that has ended

    def take(self, rank: int, kind: str, text: str) -> None:
        if kind == _LOOP_ENDED:
            runs, step = json.loads(text)
            if runs < self._fewest:  # who has made more waits for nobody else
                self._fewest = runs
                self._exchange.tell(_LOOP_ENDED, rank, runs, step)
            return
        if kind == STOP:
            if self._is_stopping:
                return
            self._is_stopping = True
        self._waiting.append((kind, text, rank))
        self._open_next()

    def take_begun(self, rank: int, number: int, run: int) -> None:
        """Take the last run of ``rank``, read after it has heard of ``number``."""
        if number != self._number:
            return
        self._begun[rank] = run
        if len(self._begun) == self._size:
            self._exchange.tell(_DECIDED, max(self._begun.values()) + 1)
            self._exchange.trim()
            self._is_open = False
            self._open_next()

    def _open_next(self) -> None:
        if self._waiting and not self._is_open:
            self._is_open = True
            self._number += 1
            self._begun = {}
            self._exchange.tell(_PROPOSED, self._number, *self._waiting.popleft())


class Decisions:
    """One rank's part in the decisions of a training.

    The ear of the exchange and a thread that speaks work beside the loop, without collectives.

    Attributes:
        begun: The run that the loop has begun last.
        runs: How many it has made.
        is_inside: Whether it is in the next one.
        frozen: Whether the loop, once it has set ``begun``, must call ``due``.
        stop_at: The run before which all ranks stop; None: not decided.
        heard_at: When this rank heard of the stop, by the monotonic clock.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self.begun = self.runs = 0
        self.is_inside = False
        self.frozen = False
        self.stop_at: int | None = None
        self.heard_at = 0.0
        self._changed = threading.Condition()
        self._open: tuple[str, str, int] | None = None
        self._is_stopping = False
        self._pending: list[Decision] = []
        self._failure: Exception | None = None
        self._answered = threading.Event()
        self._is_out = threading.Event()
        self._mouth: queue.SimpleQueue[tuple[str, str] | Exception | None] = queue.SimpleQueue()
        self._speaker = threading.Thread(
            target=self._speak, name="runhooks-rank-speaker", daemon=True
        )
        self._exchange = group.exchange

    def begin(self) -> None:
        """Begin a new training, in which others may speak before this rank does."""
        atexit.unregister(_exit_soon)  # after a training that has failed
        self._group.start_training()
        self._exchange = exchange = self._group.exchange
        proposals = Proposals(self._group.size, exchange)
        exchange.handle(_PROPOSE, proposals.take)
        exchange.handle(_BEGUN, proposals.take_begun)
        exchange.handle(_PROPOSED, self._freeze)
        exchange.handle(_DECIDED, self._decide)
        exchange.handle(_LOOP_ENDED, self._watch_beside)
        exchange.at_failure = self._take_failure

    def start(self) -> None:
        self._exchange.attend()
        self._speaker.start()

    def propose(self, kind: str, text: str) -> None:
        """Propose to all ranks. Any thread, and a signal handler, may call it."""
        self._mouth.put((kind, text))

    def due(self, run: float) -> list[Decision]:
        """Return what is decided for ``run``; raise what has failed."""
        self._group.check_process()
        with self._changed:
            self._wait_for(lambda: self._open is None)
            found = [it for it in self._pending if it.run <= run]
            self._pending = [it for it in self._pending if it.run > run]
            self.frozen = bool(self._pending)
        return found

    def wait_for_stop(self) -> int:
        """Return ``stop_at`` once it is decided; raise what has failed."""
        self._group.check_process()  # a forked child has no threads that decide
        with self._changed:
            self._wait_for(lambda: self.stop_at is not None)
            assert self.stop_at is not None
            return self.stop_at

    def end_loop(self, step: int | None) -> None:
        """Note that this loop ends; it fails if others are stuck in a collective of a later run."""
        self._is_out.set()
        if self.stop_at is not None and self.runs + 1 < self.stop_at:
            self.propose(_LOOP_ENDED, json.dumps([self.runs, step]))

    def failure(self) -> Exception | None:
        """Return the failure of another rank, or of the agreement, or None."""
        if self._failure is None:
            with suppress(OpError):
                return self._group.failure()
        return self._failure

    def leave(self) -> None:
        """End the threads once all ranks have come here; raise what has failed."""
        self._exchange.leave()
        self._group.barrier("leave")
        self._end_speaker()
        with suppress(OpError):
            if self._group.rank:
                self._exchange.say(BYE)
            else:
                self._exchange.wait_for_byes(self._group.grace_secs)

    def tell_failure(self, cause: str, rank: int) -> None:
        self._answered.set()
        self._is_out.set()
        self._fail(cause, rank)

    def abandon(self) -> None:
        """End the threads after ``tell_failure``."""
        if self._group.has_own_process:
            atexit.register(_exit_soon, self._group.grace_secs)
        self._end_speaker()
        if self._group.rank == 0:  # where the store may be
            with suppress(OpError):
                self._exchange.wait_for_byes(_LEAVE_SECS, self._group.failed_rank())

    def _wait_for(self, done: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: done() or self._failure is not None)
        if self._failure is not None:
            self._answered.set()
            raise self._failure

    def _freeze(self, number: int, kind: str, text: str, rank: int) -> None:
        heard_at = clock.monotonic()
        with self._changed:
            self._open = kind, text, rank
            if kind == STOP:
                self._is_stopping, self.heard_at = True, heard_at
            self.frozen = True
        self._exchange.say(_BEGUN, number, self.begun)  # read after the loop is frozen

    def _decide(self, run: int) -> None:
        with self._changed:
            assert self._open is not None
            decision = Decision(run, *self._open)
            self._pending.append(decision)
            if decision.kind == STOP:
                self.stop_at = run
            self._open = None
            self._changed.notify_all()

    def _watch_beside(self, rank: int, runs: int, step: int | None) -> None:
        threading.Thread(target=self._watch, args=(rank, runs, step), daemon=True).start()

    def _watch(self, ended: int, runs: int, step: int | None) -> None:
        """Let rank ``ended`` fail if this one is stuck."""
        run, secs = None, self._group.grace_secs
        while self.stop_at is not None and self.begun < self.stop_at:
            now = self.runs + 1 if self.is_inside and self.runs >= runs else None
            if now is not None and now == run:
                cause = (
                    f"its loop has ended after {runs} runs, at global step {step}, and rank "
                    f"{self._group.rank} has not come out of run {run} in {secs:g} seconds, where "
                    "a collective may wait for it; give all ranks the same number of batches, as "
                    "with drop_last=True, or stop all of them by a StopAtStepHook"
                )
                _log.error("rank %d: %s. The stacks of all threads follow", ended, cause)
                _show_stacks()
                self._fail(cause, ended)
                return
            run = now
            if self._is_out.wait(secs) or self._failure is not None:
                return

    def _fail(self, cause: str, rank: int) -> None:
        with suppress(OpError):
            self._group.fail(cause, rank)

    def _take_failure(self, error: Exception | None) -> None:
        """Let the loop raise ``error``, or its own."""
        if error is None:
            return
        with self._changed:
            self._failure = error
            self.frozen = True
            self._changed.notify_all()
        self._mouth.put(error)
        with suppress(OpError):
            self._exchange.say(BYE)

    def _end_stuck(self, error: Exception) -> None:
        _log.error(
            "%s; this rank has not come to the end of its run in %g seconds. The stacks of all "
            "threads follow, then %s is aborted",
            *(error, self._group.grace_secs, self._group.runtime),
        )
        _show_stacks()
        with suppress(RuntimeError):  # no thread can be started
            threading.Thread(target=self._group.abort, daemon=True).start()  # it may hang, too
        if not self._answered.wait(_ABORTED_SECS):
            _log.error("the run still hangs: this process is killed")
            signal.raise_signal(signal.SIGKILL)

    def _speak(self) -> None:
        try:
            failure = self._speak_until_failure()
        except Exception as error:  # noqa: BLE001 - the store may be frozen
            self._exchange.lose(error)
            failure = self._failure
        if failure is not None and not self._answered.wait(self._group.grace_secs):
            self._end_stuck(failure)

    def _speak_until_failure(self) -> Exception | None:
        pulse, secs = Pulse(self._group), self._group.silence_secs
        beat_at = clock.monotonic() + secs / BEATS
        while True:
            with suppress(queue.Empty):
                said = self._mouth.get(timeout=max(0.0, beat_at - clock.monotonic()))
                if said is None or isinstance(said, Exception):
                    return said
                if said[0] != STOP or not self._is_stopping:
                    self._exchange.say(_PROPOSE, *said)
            if clock.monotonic() >= beat_at:  # however much there is to propose
                beat_at = clock.monotonic() + secs / BEATS
                if (silent := pulse.beat()) is not None:
                    self._fail(f"it has given no sign of life for {secs:g} seconds", silent)
                    self._exchange.look()  # the ear may wait for the silent rank

    def _end_speaker(self) -> None:
        self._answered.set()
        self._mouth.put(None)
        if self._speaker.is_alive() and self._speaker is not threading.current_thread():
            self._speaker.join(_LEAVE_SECS)


def _exit_soon(secs: float) -> None:
    """End this process, whose exit may hang, in ``secs``."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(secs, _LEAVE_SECS))


def _show_stacks() -> None:
    with suppress(Exception):
        faulthandler.dump_traceback(file=2)


class Pulse:
    """Signs of life: rank 0 watches all, the others watch rank 0."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._beats = 0
        watched = [0] if group.rank else range(1, group.size)
        self._seen: dict[int, tuple[str | None, int]] = dict.fromkeys(watched, (None, 0))

    def beat(self) -> int | None:
        """Give a sign, and return a rank that is silent."""
        self._beats += 1
        self._group.set(f"beat/{self._group.rank}", str(self._beats))
        signs = self._group.peek(f"beat/{rank}" for rank in self._seen)
        for (rank, (last, times)), sign in zip(list(self._seen.items()), signs, strict=True):
            self._seen[rank] = (sign, 0) if sign != last else (last, times + 1)
            if times + 1 > BEATS and sign == last:
                return rank
        return None
