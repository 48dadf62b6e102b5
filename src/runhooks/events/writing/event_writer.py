"""``EventWriter``: events and scalars into one event file, written in the background."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from runhooks import arguments, clock
from runhooks.events.format.event import Message
from runhooks.events.place import place
from runhooks.events.writing.event_file import EventFile
from runhooks.events.writing.event_sink import EventSink
from runhooks.events.writing.stored_file import StoredFile, StoreQueue
from runhooks.events.writing.write_queue import MAX_QUEUE, OnFull, WriteQueue
from runhooks.stores import is_url


class EventWriter:
    """Writes events to a new event file in ``logdir``, in the background.

    Background errors, of the file or of an event, are raised once by the next call that adds,
    flushes or closes. The event at fault is lost or, if the file failed, all events that were being
    written; the error says how many. An event given with the call that raises is not written
    either, nor counted: add it again. The writer continues with the next one.

    Any thread or signal handler may call any method. In a forked child, or in a process that
    unpickled it, the writer creates another file for its first event. A child that ends with
    ``os._exit`` has to flush or close the writer first; children of ``multiprocessing`` do so
    automatically, even workers that a pool terminates.

    Args:
        logdir: A directory, created if it is missing; ``~`` is expanded. Or a URL, such as
            ``s3://bucket/run``.
        max_queue: Number of events that may wait to be written; a scalar is one.
        flush_secs: Events are written 0.2 seconds after they are added, or at once if this is less.
            They are written later if a device is still computing the values of earlier events; in a
            store, after ``flush_secs``. A killed process loses the events that were not written.
        filename_suffix: The end of the name of the file.
        on_full: What happens when ``max_queue`` events wait, or 256 MB of arrays: ``"wait"`` until
            they are written, ``"raise"`` ``queue.Full``, or ``"drop"`` new events and count them in
            ``dropped``.

    Raises:
        OSError: If no file can be created in ``logdir``; it names the directory.
        ImportError: If a library for the URL is not installed.
        ValueError: If the kind of URL is unknown, if ``max_queue`` or ``flush_secs`` is not above
            zero, or if ``on_full`` is not one of the above.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        max_queue: int = MAX_QUEUE,
        flush_secs: float = 120,
        filename_suffix: str = "",
        on_full: OnFull = "wait",
    ) -> None:
        arguments.instance(str, filename_suffix=filename_suffix)
        if "/" in filename_suffix or os.sep in filename_suffix:
            raise ValueError(
                f"filename_suffix must be the end of a name, without '/', got {filename_suffix!r}"
            )
        self.__setstate__((place(logdir=logdir), max_queue, flush_secs, filename_suffix, on_full))
        self._sink.open()

    def __getstate__(self) -> tuple[Any, ...]:
        return self._arguments

    def __setstate__(self, arguments: tuple[Any, ...]) -> None:
        self._arguments = arguments
        logdir, max_queue, flush_secs, suffix, on_full = arguments
        self._logdir: str = logdir
        #: All events go through it.
        self.queue: WriteQueue
        if is_url(logdir):
            self._sink = EventSink(logdir, partial(StoredFile, logdir, suffix))
            self.queue = StoreQueue(self._sink, max_queue, flush_secs, on_full)
        else:
            self._sink = EventSink(logdir, partial(EventFile, logdir, suffix))
            self.queue = WriteQueue(self._sink, max_queue, flush_secs, on_full)

    @property
    def closed(self) -> bool:
        """Whether the writer is closed."""
        return self.queue.closed

    @property
    def dropped(self) -> int:
        """Number of events that were dropped because too many were waiting."""
        return self.queue.dropped

    def get_logdir(self) -> str:
        """Return the directory of the event file."""
        return self._logdir

    def scalar(self, tag: str, value: Any, step: int | None = None) -> None:
        """Write ``value`` as float32, in an event with the current time.

        Args:
            tag: The name of the curve.
            value: A number, or an array of size 1. It is read in the background, so do not change
                it afterwards.
            step: An int64; None: 0.

        Raises what ``add`` does.
        """
        self.queue.put(tag, value, step, clock.wall())

    def scalars(self, step: int | None, values: Mapping[str, Any]) -> None:
        """Write several ``values``, by tag, in one event, each as ``scalar`` does."""
        self.queue.put(tuple(values), tuple(values.values()), step, clock.wall())

    def add(self, event: Message, nbytes: int = 0) -> None:
        """Write ``event``.

        If this raises, the event is not written. An event that another thread adds while the
        writer is being closed may be lost; the next ``add`` then raises.

        Args:
            event: Our ``Event``, or one of Protocol Buffers. It is encoded in the background, so do
                not change it, or anything in it, afterwards.
            nbytes: Size of the arrays in it, which limits the memory that waiting events use.

        Raises:
            RuntimeError: If the writer is closed.
            queue.Full: If too many events wait and ``on_full`` is ``"raise"``.
            Exception: If writing earlier events failed in the background.
        """
        self.queue.put_message(event, nbytes)

    def flush(self) -> None:
        """Return when the operating system, or the store, has all events that were added before.

        Does nothing if the writer is closed. Raises the error of the background, if any.
        """
        self.queue.flush()

    def close(self) -> None:
        """Flush, and close the file; closing it twice is fine.

        Raises the error of the background, if any; the file is closed all the same.
        """
        self.queue.close()

    def hasten(self, flush_secs: float) -> None:
        """Write events in a store after ``flush_secs`` from now on, unless it is sooner already."""
        if isinstance(self.queue, StoreQueue):
            self.queue.hasten(flush_secs)

    def reopen(self) -> bool:
        """Continue in a new file if the writer is closed or its file was deleted.

        Returns:
            Whether there is a new file.

        Raises:
            OSError: If no file can be created; it names the directory.
        """
        return self.queue.reopen()
