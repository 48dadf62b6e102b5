"""``Decisions``: what all ranks of a group do before the same run, agreed beside their loops.

A *proposal* is an entry in a log that all ranks share. On each rank a thread waits for the next
entry. It freezes its loop at the next boundary between two runs, *then* reads which run the loop
has begun last, and all ranks exchange these numbers. The decision holds before the run after the
largest of them: a loop may have begun one run since its number was read, but not two, as it looks
at ``frozen`` after it has set ``begun``. Without a proposal a loop pays for that look alone.
"""

from __future__ import annotations

import atexit
import faulthandler
import itertools
import json
import logging
import queue
import signal
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from runhooks import clock
from runhooks.errors import OpError
from runhooks.ranks.group import Group

_log = logging.getLogger("runhooks")

_END, _FAILED, _LOOP_ENDED, STOP = "end", "failed", "loop ended", "stop"

#: Looks for a sign of life in ``Group.silence_secs``.
_BEATS = 10
_LOOK_AGAIN_SECS = 0.002
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


class Decisions:
    """One rank's part in the decisions of a training.

    The loop sets ``begun`` to the number of a run, and then looks at ``frozen``: if it is true, it
    calls ``due``. Two threads work beside it; neither makes a collective.

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
        self._is_open = False
        self._pending: list[Decision] = []
        self._failure: Exception | None = None
        self._answered = threading.Event()
        self._is_out = threading.Event()
        self._heard = 0  # the entries up to here
        self._trimmed = 0  # all ranks have heard the entries up to here; they are deleted
        self._numbers = itertools.count(1)
        self._unheard: set[int] = set()  # the numbers of proposals of this rank
        self._mouth: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=act, name=f"runhooks-rank-{name}", daemon=True)
            for name, act in (("listener", self._listen), ("speaker", self._speak))
        ]

    def start(self) -> None:
        """Start the threads."""
        atexit.unregister(_exit_soon)  # after a training that has failed
        for thread in self._threads:
            thread.start()

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
            self._changed.wait_for(lambda: not self._is_open or self._failure is not None)
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
            self.propose(_LOOP_ENDED, json.dumps([self.runs, step]))

    def failure(self) -> Exception | None:
        """Return the failure of another rank, or of the agreement itself; None if there is none."""
        if self._failure is None:
            with suppress(OpError):
                return self._group.failure()
        return self._failure

    def leave(self) -> None:
        """End the threads once all ranks have come here. Raises as ``due`` does."""
        group = self._group
        group.barrier("leave")
        if group.rank == 0:
            self._append(_END, "")
        self._end_threads()
        with suppress(OpError):
            if group.rank:
                group.set(f"left/{group.rank}", "")
            else:
                self._wait_for_others("left", group.grace_secs)

    def tell_failure(self, cause: str, rank: int) -> None:
        """Tell the other ranks that ``rank``, which may be this one, has failed."""
        self._answered.set()
        self._is_out.set()
        self._fail(cause, rank)

    def abandon(self) -> None:
        """End the threads after ``tell_failure``, without waiting for the other ranks."""
        if self._group.has_own_process:
            atexit.register(_exit_soon, self._group.grace_secs)
        self._end_threads()
        if self._group.rank == 0:  # which may be where the store is
            with suppress(OpError):
                self._wait_for_others("heard", _LEAVE_SECS)

    def _check(self) -> None:
        if self._failure is not None:
            self._answered.set()
            raise self._failure

    def _listen(self) -> None:
        entry = 0
        try:
            while True:
                entry += 1
                kind, text, rank, number = json.loads(self._group.listen(f"log/{entry}"))
                if rank == self._group.rank:
                    self._unheard.discard(number)
                self._heard = entry
                if kind == _END:
                    return
                if kind == _FAILED:
                    if failure := self._group.failure():
                        raise failure
                    return
                if kind == _LOOP_ENDED:
                    threading.Thread(
                        target=self._watch, args=(rank, *json.loads(text)), daemon=True
                    ).start()
                elif kind != STOP or self.stop_at is None:  # they stop once
                    self._decide(kind, text, rank)
                    self._trim(entry)
        except Exception as error:  # noqa: BLE001 - the loop raises it
            self._take_failure(error)

    def _decide(self, kind: str, text: str, rank: int) -> None:
        heard_at = clock.monotonic()
        with self._changed:
            self._is_open = self.frozen = True
        begun = self._group.gather("decision", str(self.begun))  # read after the loop is frozen
        run = max(map(int, begun)) + 1
        with self._changed:
            self._pending.append(Decision(run, kind, text, rank))
            if kind == STOP and self.stop_at is None:
                self.stop_at, self.heard_at = run, heard_at
            self._is_open = False
            self._changed.notify_all()

    def _trim(self, entry: int) -> None:
        """Delete the log up to ``entry``, about which all ranks have told what they have begun."""
        if self._group.rank == 0:
            for heard in range(self._trimmed + 1, entry + 1):
                self._group.delete(f"log/{heard}")
            self._trimmed = entry

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

    def _fail(self, cause: str, rank: int | None = None) -> None:
        with suppress(OpError):
            self._group.fail(cause, rank)
            self._append(_FAILED, cause)

    def _take_failure(self, error: Exception) -> None:
        with self._changed:
            if self._failure is not None:  # the other thread has taken it
                return
            self._failure = error
            self.frozen = True
            self._changed.notify_all()
        with suppress(OpError):
            self._group.set(f"heard/{self._group.rank}", "")
        if not self._answered.wait(self._group.grace_secs):
            self._end_stuck(error)

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
        watch, secs = _Pulse(self._group), self._group.silence_secs
        beat_at = clock.monotonic() + secs / _BEATS
        try:
            while True:
                with suppress(queue.Empty):
                    proposal = self._mouth.get(timeout=max(0.0, beat_at - clock.monotonic()))
                    if proposal is None:
                        return
                    if proposal[0] != STOP or self.stop_at is None:
                        self._append(*proposal)
                if clock.monotonic() >= beat_at:  # however much there is to propose
                    beat_at = clock.monotonic() + secs / _BEATS
                    if (silent := watch.beat()) is not None:
                        self._fail(f"it has given no sign of life for {secs:g} seconds", silent)
                        return
        except Exception as error:  # noqa: BLE001 - the listener may wait for a store that is frozen
            self._take_failure(error)

    def _append(self, kind: str, text: str) -> None:
        number, entry = next(self._numbers), 0
        self._unheard.add(number)
        said = json.dumps([kind, text, self._group.rank, number])
        while True:
            entry = max(entry, self._heard) + 1
            if self._group.set_once(f"log/{entry}", said) != said:  # it is another's
                continue
            if self._heard < entry or number not in self._unheard:
                return
            # It was another's, heard by all ranks and trimmed while this one came to it.
            self._group.delete(f"log/{entry}")

    def _end_threads(self) -> None:
        self._answered.set()
        self._mouth.put(None)
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(_LEAVE_SECS)

    def _wait_for_others(self, what: str, secs: float) -> None:
        deadline = clock.monotonic() + secs
        missing = [rank for rank in range(1, self._group.size) if rank != self._group.failed_rank()]
        while missing and clock.monotonic() < deadline:
            missing = [rank for rank in missing if self._group.get(f"{what}/{rank}") is None]
            time.sleep(_LOOK_AGAIN_SECS)


def _exit_soon(secs: float) -> None:
    """End this process within ``secs`` seconds, whatever hangs.

    Runtimes wait at the exit for ranks that are gone: JAX for 100 seconds, gloo at times forever.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(secs, _LEAVE_SECS))


def _show_stacks() -> None:
    with suppress(Exception):
        faulthandler.dump_traceback(file=2)


class _Pulse:
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
        for rank, (last, times) in self._seen.items():
            sign = self._group.get(f"beat/{rank}")
            self._seen[rank] = (sign, 0) if sign != last else (last, times + 1)
            if times + 1 > _BEATS and sign == last:
                return rank
        return None
