"""``FileWriter``: summaries into an event file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from runhooks import arguments, clock
from runhooks.events import Event, EventWriter, Message, OnFull
from runhooks.events.write_queue import MAX_QUEUE
from runhooks.summary.address import global_step as at_step
from runhooks.summary.address import step_now
from runhooks.summary.graph_def import GraphLike, checked_graph_def, encode_graph
from runhooks.summary.kinds.scalar import numbers_now
from runhooks.summary.queued_writer import QueuedWriter


class FileWriter(QueuedWriter):
    """Writes summaries to a new event file in ``logdir``, in the background.

    Arguments are those of ``tf.compat.v1.summary.FileWriter``. ``graph``: a graph to write first,
    as ``add_graph`` does. ``max_queue``: events that may wait to be written, a scalar being one.
    (TensorFlow's default is 10, at which a loop that adds a dozen scalars a step waits for the
    disk in every step.) ``flush_secs``: events are written 0.2 seconds after they are added, or at
    once if this is less; so much a process that is killed can lose. ``graph_def``: a graph as
    bytes or message, in place of ``graph``. ``filename_suffix``: what the name of the file ends
    in. ``session``: must be None; there is no file here to be shared through a session.
    ``on_full``: what happens when ``max_queue`` events wait, or 256 MB of arrays: ``"wait"`` until
    they are written, ``"raise"`` ``queue.Full``, or ``"drop"`` what is added and count it in
    ``dropped``.

    All methods that write return before the event is written and raise, once, what went wrong in
    the background before; see ``EventWriter``. After ``close`` they raise RuntimeError, where
    TensorFlow warns and drops the event: a value that is lost deserves more than a warning.

    As long as one is open, and the program has no handler of its own, SIGTERM has all that was
    added written, for at most 5 seconds, before it ends the process; as with any handler in Python
    that waits for a call into C to return. If the file or its directory is deleted, the next calls
    raise FileNotFoundError until ``reopen``.

    A writer that was pickled writes, where it is unpickled, to a file of its own.

    ``logdir`` may begin with ``~``. Raises OSError, naming it, if no file can be made there;
    TypeError or ValueError for an argument that is wrong or out of range, a URL among them.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        graph: GraphLike | None = None,
        max_queue: int = MAX_QUEUE,
        flush_secs: float = 120,
        graph_def: bytes | Message | None = None,
        filename_suffix: str | None = None,
        session: None = None,
        on_full: OnFull = "wait",
    ) -> None:
        if session is not None:
            raise ValueError(
                f"session must be None, got {session!r}: event files are not shared through a "
                "session; use FileWriterCache.get(logdir) to share a writer"
            )
        suffix = filename_suffix or ""
        has_graph = graph is not None or graph_def is not None
        event = _graph_event(graph, graph_def, 0) if has_graph else None  # before there is a file
        self.__setstate__(EventWriter(logdir, max_queue, flush_secs, suffix, on_full))
        if event is not None:
            self._add(event)

    def __getstate__(self) -> EventWriter:
        return self._events

    def __setstate__(self, events: EventWriter) -> None:
        super().__init__(events.queue)
        self._events = events

    @property
    def dropped(self) -> int:
        """How many events were dropped because too many waited."""
        return self._queue.dropped

    def get_logdir(self) -> str:
        """Return the directory of the event file."""
        return self._events.get_logdir()

    def scalars(self, step: int, values: Mapping[str, Any]) -> None:
        """Write several numbers of one step, by tag, as ``scalar`` does, in one event."""
        numbers = numbers_now(values)
        self._events.scalars(step_now(step, list(numbers)), numbers)
        self._start_step = None

    def add_graph(
        self,
        graph: GraphLike | None = None,
        global_step: int | None = None,
        graph_def: bytes | Message | None = None,
    ) -> None:
        """Add a graph, as TensorBoard's graph tab shows it.

        Raises ValueError unless exactly one of ``graph`` and ``graph_def`` is given, TypeError if
        it is no graph.
        """
        self._add(_graph_event(graph, graph_def, at_step(global_step, "the graph")))

    def graph(self, graph: GraphLike) -> None:
        """Write ``graph``, as ``add_graph`` does."""
        self.add_graph(graph)

    def add_event(self, event: Message) -> None:
        """Add ``event``: an ``Event``, of ours or of Protocol Buffers, with its own time.

        Raises TypeError if it is neither.
        """
        if not hasattr(event, "wall_time") or not hasattr(event, "SerializeToString"):
            raise TypeError(f"event must be an Event, got {event!r}")
        self._add(event)


def _graph_event(graph: GraphLike | None, graph_def: bytes | Message | None, step: int) -> Event:
    arguments.exactly_one(graph=graph, graph_def=graph_def)
    encoded = encode_graph(graph) if graph is not None else checked_graph_def(graph_def or b"")
    return Event(clock.wall(), step, graph_def=encoded)
