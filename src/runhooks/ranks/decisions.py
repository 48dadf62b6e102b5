"""``Decisions``: what all ranks of a group do before the same run, agreed beside their loops.

A rank *proposes* to rank 0, which tells all. Each rank freezes its loop at the next boundary
between two runs, *then* reads which run the loop has begun last, and tells rank 0. The decision,
which rank 0 tells all, holds before the run after the largest of these: a loop may have begun one
run since its number was read, but not two, as it looks at ``frozen`` after it has set ``begun``.
Without a proposal a loop pays for that look alone.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import logging
import queue
import signal
import threading
from contextlib import suppress
from typing import NamedTuple

from runhooks import clock
from runhooks.errors import OpError
from runhooks.ranks.group import Group
from runhooks.ranks.proposals import BEGUN, DECIDED, LOOP_ENDED, PROPOSE, PROPOSED, STOP, Proposals

_log = logging.getLogger("runhooks")

#: Looks for a sign of life in ``Group.silence_secs``.
BEATS = 10
_LEAVE_SECS = 5.0  # that a rank stays, after a failure, for the others to read the store it hosts
_ABORTED_SECS = 5.0  # that a loop has to end after its collectives were aborted


class Decision(NamedTuple):
    """What all ranks do before run number ``run``, counted from 1.

    Attributes:
        run: The number of the run before which it holds.
        kind: What is done.
        text: Details, of the rank that proposed it.
        rank: That rank.
    """

    run: int
    kind: str
    text: str
    rank: int


class Proposal(NamedTuple):
    """What is open: all loops wait at their next boundary."""

    kind: str
    text: str
    rank: int
    heard_at: float


class Decisions:
    """One rank's part in the decisions of a training.

    The loop sets ``begun`` to the number of a run, and then looks at ``frozen``: if it is true, it
    calls ``due``. Two threads work beside it, the ear of the exchange and one that speaks; neither
    makes a collective.

    Args:
        group: The ranks.

    Attributes:
        begun: The number of the run that the loop has begun last.
        runs: How many runs the loop has made.
        is_inside: Whether it is in the next one.
        frozen: Whether the loop must call ``due`` before the run it has begun.
        stop_at: The run before which all ranks stop; None: that is not decided.
        heard_at: When this rank heard that they are to stop, by the monotonic clock.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self.begun = self.runs = 0
        self.is_inside = False
        self.frozen = False
        self.stop_at: int | None = None
        self.heard_at = 0.0
        self._changed = threading.Condition()
        self._open: Proposal | None = None
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
        """Begin a new training of the group, in which others may speak before this rank does."""
        atexit.unregister(_exit_soon)  # after a training that has failed
        self._group.start_training()
        self._exchange = exchange = self._group.exchange
        proposals = Proposals(self._group.size, exchange)
        exchange.handle(PROPOSE, proposals.take)
        exchange.handle(BEGUN, proposals.take_begun)
        exchange.handle(PROPOSED, self._freeze)
        exchange.handle(DECIDED, self._decide)
        exchange.handle(LOOP_ENDED, self._watch_beside)
        exchange.at_failure = self._take_failure

    def start(self) -> None:
        """Listen all the time, and speak."""
        self._exchange.attend()
        self._speaker.start()

    def propose(self, kind: str, text: str) -> None:
        """Propose a decision to all ranks. Any thread, and a signal handler, may call it."""
        self._mouth.put((kind, text))

    def due(self, run: float) -> list[Decision]:
        """Return what is decided for ``run``, each decision once; wait for one that is open.

        Raises:
            PeerFailedError: If another rank has failed.
            DeadlineExceededError, UnavailableError: If the ranks can agree no more.
        """
        self._group.check_process()
        with self._changed:
            self._changed.wait_for(lambda: self._open is None or self._failure is not None)
            self._check()
            found = [it for it in self._pending if it.run <= run]
            self._pending = [it for it in self._pending if it.run > run]
            self.frozen = bool(self._pending)
        return found

    def wait_for_stop(self) -> int:
        """Return ``stop_at`` once it is decided. Raises as ``due`` does."""
        self._group.check_process()  # a forked child has no threads that decide
        with self._changed:
            self._changed.wait_for(lambda: self.stop_at is not None or self._failure is not None)
            self._check()
            assert self.stop_at is not None
            return self.stop_at

    def end_loop(self, step: int | None) -> None:
        """Note, once it is decided when all stop, that this loop makes no more runs.

        Ranks that make a run which this one does not may wait for it there in a collective: they
        have ``Group.grace_secs`` for it, and then this rank has failed.
        """
        self._is_out.set()
        if self.stop_at is not None and self.runs + 1 < self.stop_at:
            self.propose(LOOP_ENDED, json.dumps([self.runs, step]))

    def failure(self) -> Exception | None:
        """Return the failure of another rank, or of the agreement itself; None if there is none."""
        if self._failure is None:
            with suppress(OpError):
                return self._group.failure()
        return self._failure

    def leave(self) -> None:
        """End the threads once all ranks have come here. Raises as ``due`` does."""
        self._exchange.leave()
        self._group.barrier("leave")
        self._end_speaker()
        with suppress(OpError):
            if self._group.rank:
                self._exchange.say_bye()
            else:
                self._exchange.wait_for_byes(self._group.grace_secs)

    def tell_failure(self, cause: str, rank: int) -> None:
        """Tell the other ranks that ``rank``, which may be this one, has failed."""
        self._answered.set()
        self._is_out.set()
        self._fail(cause, rank)

    def abandon(self) -> None:
        """End the threads after ``tell_failure``, without waiting for the other ranks."""
        if self._group.has_own_process:
            atexit.register(_exit_soon, self._group.grace_secs)
        self._end_speaker()
        if self._group.rank == 0:  # which may be where the store is
            with suppress(OpError):
                self._exchange.wait_for_byes(_LEAVE_SECS, self._group.failed_rank())

    def _check(self) -> None:
        if self._failure is not None:
            self._answered.set()
            raise self._failure

    def _freeze(self, number: int, kind: str, text: str, rank: int) -> None:
        heard_at = clock.monotonic()
        with self._changed:
            self._open = Proposal(kind, text, rank, heard_at)
            self._is_stopping = self._is_stopping or kind == STOP
            self.frozen = True
        self._exchange.say(BEGUN, number, self.begun)  # read after the loop is frozen

    def _decide(self, run: int) -> None:
        with self._changed:
            assert self._open is not None
            kind, text, rank, heard_at = self._open
            self._pending.append(Decision(run, kind, text, rank))
            if kind == STOP:
                self.stop_at, self.heard_at = run, heard_at
            self._open = None
            self._changed.notify_all()

    def _watch_beside(self, rank: int, runs: int, step: int | None) -> None:
        threading.Thread(target=self._watch, args=(rank, runs, step), daemon=True).start()

    def _watch(self, ended: int, runs: int, step: int | None) -> None:
        """Let rank ``ended``, whose loop has made ``runs`` runs, fail if this one is stuck."""
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
        """Let the loop raise ``error``; None: the failure of this rank, which raises its own."""
        if error is None:
            return
        with self._changed:
            self._failure = error
            self.frozen = True
            self._changed.notify_all()
        self._mouth.put(error)
        with suppress(OpError):
            self._exchange.say_bye()

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
        except Exception as error:  # noqa: BLE001 - the ear may wait for a store that is frozen
            self._exchange.lose(error)
            failure = self._failure
        if failure is not None and not self._answered.wait(self._group.grace_secs):
            self._end_stuck(failure)

    def _speak_until_failure(self) -> Exception | None:
        """Propose, and give signs of life, until this rank leaves; return what failed before."""
        pulse, secs = Pulse(self._group), self._group.silence_secs
        beat_at = clock.monotonic() + secs / BEATS
        while True:
            with suppress(queue.Empty):
                said = self._mouth.get(timeout=max(0.0, beat_at - clock.monotonic()))
                if said is None or isinstance(said, Exception):
                    return said
                if said[0] != STOP or not self._is_stopping:
                    self._exchange.say(PROPOSE, *said)
            if clock.monotonic() >= beat_at:  # however much there is to propose
                beat_at = clock.monotonic() + secs / BEATS
                if (silent := pulse.beat()) is not None:
                    self._fail(f"it has given no sign of life for {secs:g} seconds", silent)
                    self._exchange.look()  # the ear may wait for what the silent rank was to say

    def _end_speaker(self) -> None:
        self._answered.set()
        self._mouth.put(None)
        if self._speaker.is_alive() and self._speaker is not threading.current_thread():
            self._speaker.join(_LEAVE_SECS)


def _exit_soon(secs: float) -> None:
    """End this process within ``secs`` seconds, whatever hangs.

    Runtimes wait at the exit for ranks that are gone: JAX for 100 seconds, gloo at times forever.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(secs, _LEAVE_SECS))


def _show_stacks() -> None:
    with suppress(Exception):
        faulthandler.dump_traceback(file=2)


class Pulse:
    """Gives signs of life, and finds a rank that has given none for long.

    Rank 0 watches all, the others watch rank 0. What counts is how often this rank has looked: one
    that was stopped itself has not.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._beats = 0
        watched = [0] if group.rank else range(1, group.size)
        self._seen: dict[int, tuple[str | None, int]] = dict.fromkeys(watched, (None, 0))

    def beat(self) -> int | None:
        """Give a sign, look for those of the others, and return a rank that is silent."""
        self._beats += 1
        self._group.set(f"beat/{self._group.rank}", str(self._beats))
        signs = self._group.peek(f"beat/{rank}" for rank in self._seen)
        for (rank, (last, times)), sign in zip(list(self._seen.items()), signs, strict=True):
            self._seen[rank] = (sign, 0) if sign != last else (last, times + 1)
            if times + 1 > BEATS and sign == last:
                return rank
        return None
