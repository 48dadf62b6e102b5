"""``EventWriter``: events and scalars into one event file, written in the background."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from runhooks import arguments, clock
from runhooks.events.event import Message
from runhooks.events.event_sink import EventSink
from runhooks.events.local_path import local_path
from runhooks.events.queue_policy import OnFull
from runhooks.events.write_queue import MAX_QUEUE, WriteQueue


class EventWriter:
    """Writes events to a new event file in ``logdir``; what adds costs its caller an append.

    ``max_queue``: events that may wait to be written, a scalar being one. ``flush_secs``: events
    are written 0.2 seconds after they are added, or at once if this is less; later if what is
    written before them takes long, as values do that a device computes. So much a process that is
    killed can lose. ``filename_suffix``: what the name of the file ends in. ``on_full``: what
    happens when ``max_queue`` events wait, or 256 MB of arrays: ``"wait"`` until they are written,
    ``"raise"`` ``queue.Full``, or ``"drop"`` what is added and count it in ``dropped``.

    What goes wrong in the background, with the file or with an event, is raised as it is by the
    next call that adds, or by ``flush`` or ``close``, once; the event it happened to is lost, or
    with the file all those that were about to be written, and the writer goes on with the next.
    Any thread or signal handler may call any method. In a forked child, and in a process that it
    was sent to as a pickle, the writer writes a file of that process, made for its first event; a
    child that ends by ``os._exit`` has to flush or close it before, which those of
    ``multiprocessing`` do by themselves, workers that a pool terminates among them.

    ``logdir`` may begin with ``~``. Raises OSError, naming it, if no file can be made there;
    ValueError if it is a URL, ``max_queue`` or ``flush_secs`` is not above zero, or for another
    ``on_full``.
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
        self.__setstate__(
            (local_path(logdir=logdir), max_queue, flush_secs, filename_suffix, on_full)
        )
        self._sink.open()

    def __getstate__(self) -> tuple[Any, ...]:
        return self._arguments

    def __setstate__(self, arguments: tuple[Any, ...]) -> None:
        self._arguments = arguments
        logdir, max_queue, flush_secs, suffix, on_full = arguments
        self._logdir: str = logdir
        self._sink = EventSink(logdir, suffix)
        #: What all of it goes through.
        self.queue = WriteQueue(self._sink, max_queue, flush_secs, on_full)

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self.queue.closed

    @property
    def dropped(self) -> int:
        """How many events were dropped because too many waited."""
        return self.queue.dropped

    def get_logdir(self) -> str:
        """Return the directory of the event file."""
        return self._logdir

    def scalar(self, tag: str, value: Any, step: int | None = None) -> None:
        """Have ``value`` written as float32, in an event of now.

        ``value``: a number, or an array of size 1, which is read in the background: do not change
        it after this. ``step``: an integer of 64 bits; 0 if None. Raises what ``add`` does.
        """
        self.queue.put(tag, value, step, clock.wall())

    def scalars(self, step: int | None, values: Mapping[str, Any]) -> None:
        """Have several ``values``, by tag, written in one event, as ``scalar`` does each."""
        self.queue.put(tuple(values), tuple(values.values()), step, clock.wall())

    def add(self, event: Message, nbytes: int = 0) -> None:
        """Have ``event`` written, an ``Event`` of ours or of Protocol Buffers.

        It is encoded in the background: do not change it, or what it holds, after this.
        ``nbytes``: of the arrays that it holds, so that they do not fill the memory.

        Raises RuntimeError if the writer is closed, ``queue.Full`` if ``on_full`` says so, and
        what went wrong in the background before; ``event`` is then not written. What another
        thread adds while the writer is being closed may be lost, which the next ``add`` raises.
        """
        self.queue.put_message(event, nbytes)

    def flush(self) -> None:
        """Return when all that was added before is in the file, handed to the operating system.

        Raises what went wrong in the background. On a closed writer: nothing to do.
        """
        self.queue.flush()

    def close(self) -> None:
        """Flush, and close the file; again: nothing happens.

        Raises what went wrong in the background; the file is closed nevertheless.
        """
        self.queue.close()

    def reopen(self) -> bool:
        """Go on in a new file if the writer is closed or its file was deleted; whether that was so.

        Raises OSError, naming the directory, if no file can be made there.
        """
        return self.queue.reopen()
