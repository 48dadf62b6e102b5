"""``EventWriter``: events into one event file, written in the background."""

from __future__ import annotations

import os
import threading
from collections import deque
from queue import SimpleQueue

from runhooks import arguments
from runhooks.events import background
from runhooks.events.event import Message
from runhooks.events.event_file import EventFile
from runhooks.events.record import frame

_BATCH_BYTES = 1 << 20

#: Who waits for it gets something when all that was added before it is written. (A threading.Event
#: would not do: a signal handler that interrupts a thread inside one may have to wait as well.)
_Barrier = SimpleQueue[None]


class EventWriter:
    """Writes events to a new event file in ``logdir``; an ``add`` costs its caller an append.

    ``max_queue``: events that may wait to be written; at that number ``add`` waits for them.
    ``flush_secs``: events are written 0.2 seconds after they are added, or at once if this is
    less; later if what is written before them takes long, as values do that a device computes.
    ``filename_suffix``: what the name of the file ends in.

    What goes wrong in the background, with the file or with an event, is raised as it is by the
    next ``add``, ``flush`` or ``close``, once; the event it happened to is lost, or with the file
    all those that were about to be written, and the writer goes on with the next. Any thread or
    signal handler may call any method. In a forked child the writer writes a file of the child's
    own, made for its first event; a child that ends by ``os._exit`` has to flush or close it
    before, which those of ``multiprocessing`` do by themselves.

    Raises OSError, naming the directory, if no file can be made there; ValueError if ``max_queue``
    or ``flush_secs`` is not above zero.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        max_queue: int = 1000,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        arguments.positive(max_queue=max_queue, flush_secs=flush_secs)
        self._logdir = os.fspath(logdir)
        self._suffix = filename_suffix
        self._max_queue = max_queue
        self._hurry = flush_secs < background.LINGER_SECS
        self._closed = False
        self._start_afresh()
        self._file: EventFile | None = EventFile(self._logdir, self._suffix)
        background.register(self)

    def _start_afresh(self) -> None:
        self._pending: deque[Message | _Barrier] = deque()
        self._scheduled = False
        self._errors: deque[BaseException] = deque()
        self._refusing = self._closed  # or has errors: what add has to look at
        self._writing = threading.RLock()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closed

    def get_logdir(self) -> str:
        """Return the directory of the event file."""
        return self._logdir

    def add(self, event: Message) -> None:
        """Have ``event`` written, an ``Event`` of ours or of Protocol Buffers.

        It is encoded in the background: do not change it, or what it holds, after this.

        Raises RuntimeError if the writer is closed, and what went wrong in the background before;
        ``event`` is then not written. What another thread adds while the writer is being closed
        may be lost, which the next ``add`` raises.
        """
        pending = self._pending
        if len(pending) >= self._max_queue:
            self._wait_for_all()
        if self._refusing:
            self._refuse()
        pending.append(event)
        if not self._scheduled:
            self._scheduled = True
            background.schedule(self, self._hurry)

    def flush(self) -> None:
        """Return when all that was added before is in the file, handed to the operating system.

        Raises what went wrong in the background. On a closed writer: nothing to do.
        """
        if not self._closed:
            self._wait_for_all()
            self._raise_error()

    def close(self) -> None:
        """Flush, and close the file; again: nothing happens.

        Raises what went wrong in the background; the file is closed nevertheless.
        """
        if self._closed:
            return
        self._closed = self._refusing = True
        self._wait_for_all()
        with self._writing:
            if self._file is not None:
                self._file.close()
        self._raise_error()

    def reopen(self) -> bool:
        """Go on in a new file if the writer is closed or its file was deleted; whether that was so.

        Raises OSError, naming the directory, if no file can be made there.
        """
        file = self._file
        if not self._closed and (file is None or file.path.exists()):
            return False
        with self._writing:
            self._file = EventFile(self._logdir, self._suffix)
            if file is not None:
                file.close()
        self._closed, self._refusing = False, bool(self._errors)
        return True

    def work(self) -> None:
        """Write all that was added (the background thread calls this)."""
        with self._writing:
            # Before looking: what is added after the last look then schedules anew.
            self._scheduled = False
            while self._pending:
                self._write_batch()

    def forked(self) -> None:
        """Leave the file and the events to the parent process."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._start_afresh()

    def _write_batch(self) -> None:
        records: list[bytes] = []
        waiting: list[_Barrier] = []
        size = 0
        while self._pending and size < _BATCH_BYTES:
            item = self._pending.popleft()
            if isinstance(item, SimpleQueue):
                waiting.append(item)
            elif record := self._encode(item):
                records.append(record)
                size += len(record)
        if records:
            self._write(records)
        for barrier in waiting:
            barrier.put(None)

    def _encode(self, event: Message) -> bytes | None:
        try:
            return frame(event.SerializeToString())
        except BaseException as error:  # noqa: BLE001 (the caller gets it; no one may hang)
            error.add_note(
                f"while encoding an event of step {getattr(event, 'step', None)} "
                f"for the event file in {self._logdir!r}; the event is lost"
            )
            self._keep(error)
            return None

    def _write(self, records: list[bytes]) -> None:
        try:
            if self._file is None:  # the first events of a forked child
                self._file = EventFile(self._logdir, self._suffix)
            self._file.write(b"".join(records))
        except BaseException as error:  # noqa: BLE001 (likewise)
            error.add_note(f"{len(records)} events for {self._logdir!r} are lost")
            self._keep(error)

    def _keep(self, error: BaseException) -> None:
        self._errors.append(error)
        self._refusing = True

    def _refuse(self) -> None:
        self._raise_error()
        if self._closed:
            raise RuntimeError(
                f"the event writer of {self._logdir!r} is closed: reopen() it before adding"
            )

    def _raise_error(self) -> None:
        self._refusing = self._closed
        if self._errors:
            first, *rest = (self._errors.popleft() for _ in range(len(self._errors)))
            if rest:
                first.add_note(f"{len(rest)} more errors followed; the last is {rest[-1]!r}")
            raise first

    def _wait_for_all(self) -> None:
        barrier: _Barrier = SimpleQueue()
        self._pending.append(barrier)
        background.schedule(self, hurry=True)
        barrier.get()
