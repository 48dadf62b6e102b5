"""``FileWriter``, and ``FileWriterCache``, which has one for each directory."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

from runhooks import arguments, clock
from runhooks.contract import RawSession
from runhooks.errors import call_all
from runhooks.events import Event, Message, OnFull, SessionLog, SessionStatus
from runhooks.events.format import proto
from runhooks.events.place import identity, place, rank_folder
from runhooks.events.writing.background import LINGER_SECS
from runhooks.events.writing.event_file import EventSink, StoreQueue
from runhooks.events.writing.write_queue import MAX_QUEUE, WriteQueue
from runhooks.stores import is_url
from runhooks.summary.message import (
    EncodedEvent,
    checked_tag,
    serialized,
    step_or_zero,
    step_snapshot,
)
from runhooks.summary.values import kept_numbers
from runhooks.summary.writer import FileState, GraphLike, QueuedWriter

_PRODUCER = 22  # the oldest graph version that all readers in use take

AnyGraph: TypeAlias = GraphLike | bytes | Message


class FileOptions(NamedTuple):
    max_queue: int = MAX_QUEUE
    flush_secs: float = 120
    filename_suffix: str = ""
    on_full: OnFull = "wait"

    @property
    def are_default(self) -> bool:
        return self._replace(flush_secs=120) == FileOptions() and self.flush_secs >= LINGER_SECS


class SharedFile:
    """An event file and the writers that have it open.

    With a file each, the ``START`` of one would hide what another writes.
    """

    #: Of the open files and the cache.
    lock: ClassVar = threading.RLock()
    _by_directory: ClassVar[weakref.WeakValueDictionary[str, SharedFile]] = (
        weakref.WeakValueDictionary()
    )

    def __init__(self, queue: WriteQueue) -> None:
        self.queue = queue
        self.state = FileState()
        self.writers: weakref.WeakSet[Any] = weakref.WeakSet()

    @classmethod
    def join(cls, writer: Any, logdir: str, options: FileOptions, lazily: bool) -> SharedFile:
        """Return the file in ``logdir`` for ``writer``, with default ``options`` a shared one.

        A new one is made now or, ``lazily``, with its first event.
        """
        directory = identity(logdir)
        with cls.lock:
            file = cls._by_directory.get(directory)
            if file is None or not options.are_default:
                file = cls(_queue(logdir, options, lazily))
                cls._by_directory.setdefault(directory, file)
            else:
                file.reopen()
                file.queue.hasten(options.flush_secs)
            file.writers.add(writer)
            return file

    def leave(self, writer: Any) -> None:
        """Flush, and close the file if nobody else has it open."""
        with self.lock:
            self.writers.discard(writer)
            is_last = not self.writers
            for directory, file in list(self._by_directory.items()):
                if is_last and file is self:
                    del self._by_directory[directory]
        if is_last:
            self.queue.close()
        else:
            self.queue.flush()

    def reopen(self) -> None:
        if self.queue.reopen():
            self.state.begin()

    @classmethod
    def forked(cls) -> None:
        """Forget the lock, which a thread of the parent may have held."""
        cls.lock = threading.RLock()
        SessionFiles.begun.clear()
        for file in list(cls._by_directory.values()):
            file.state.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SharedFile.forked)


def _queue(logdir: str, options: FileOptions, lazily: bool) -> WriteQueue:
    size, secs, suffix, on_full = options
    sink = EventSink(logdir, suffix)
    kind = StoreQueue if is_url(logdir) else WriteQueue
    queue = kind(sink, size, secs, on_full)
    if not lazily:
        sink.open()
    return queue


class FileWriter(QueuedWriter):
    """Writes summaries to an event file in ``logdir``, in the background.

    In one process, all writers of a directory share one file. A writer with another ``max_queue``,
    ``filename_suffix`` or ``on_full`` than the default, or ``flush_secs`` below 0.2, has its own,
    unless it is the first. If the file is deleted, calls raise FileNotFoundError until ``reopen``.

    Any thread or signal handler may call any method. In a forked child, or where it is unpickled,
    the writer makes another file. A child that ends with ``os._exit`` has to flush first; those of
    ``multiprocessing`` that end by themselves do so. SIGTERM, without a handler, first writes what
    was added, for at most 5 seconds.

    Args:
        logdir: The directory, which may begin with ``~`` and is created if missing; or a URL, such
            as ``s3://bucket/run``.
        graph: A graph of runhooks or TensorFlow, or a ``GraphDef``, to write first.
        max_queue: How many events, such as scalars, may wait to be written.
        flush_secs: In a store, events are written after this; in a file, after 0.2 seconds, or at
            once if this is less.
        graph_def: The same as ``graph``.
        filename_suffix: The end of the file's name.
        session: Ignored, for TensorFlow's programs.
        on_full: What a call does when ``max_queue`` events wait, or 256 MB of arrays: ``"wait"``,
            ``"raise"`` ``queue.Full``, or ``"drop"`` its event and count it in ``dropped``.

    Raises:
        OSError: No file can be created in ``logdir``.
        TypeError, ValueError: An argument is wrong or out of range, or the kind of URL is unknown.
        ImportError: A library for the URL is not installed.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        graph: AnyGraph | None = None,
        max_queue: int = MAX_QUEUE,
        flush_secs: float = 120,
        graph_def: AnyGraph | None = None,
        filename_suffix: str | None = None,
        session: Any = None,
        on_full: OnFull = "wait",
    ) -> None:
        options = FileOptions(max_queue, flush_secs, filename_suffix or "", on_full)
        arguments.instance(str, filename_suffix=options.filename_suffix)
        if "/" in options.filename_suffix or os.sep in options.filename_suffix:
            raise ValueError(
                f"filename_suffix must be the end of a name, without '/', got {filename_suffix!r}"
            )
        has_graph = graph is not None or graph_def is not None
        event = _graph_event(graph, graph_def, 0) if has_graph else None  # before a file
        self._open(place(logdir=logdir), options)
        if event is not None:
            self._add(event)

    def __getstate__(self) -> tuple[Any, ...]:
        return self._logdir, self._options

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        logdir, options = state
        self._open(logdir, options, lazily=True)

    def _open(self, logdir: str, options: FileOptions, lazily: bool = False) -> None:
        self._logdir = logdir
        self._options = options
        self._closed = False
        self._file = SharedFile.join(self, logdir, options, lazily)
        super().__init__(self._file.queue, self._file.state)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def is_alone(self) -> bool:
        """Whether no other writer has its file open."""
        return set(self._file.writers) == {self}

    @property
    def dropped(self) -> int:
        """How many events were dropped."""
        return self._queue.dropped

    def get_logdir(self) -> str:
        """Return the directory of the event file."""
        return self._logdir

    def flush(self) -> None:
        if not self._closed:
            self._queue.flush()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._put = self._refuse
            self._file.leave(self)

    def reopen(self) -> None:
        if self._closed:
            self._open(self._logdir, self._options)
        else:
            self._file.reopen()

    def scalars(self, values: Mapping[str, Any], step: int) -> None:
        """Write several numbers of one step, by tag, in one event."""
        numbers = kept_numbers(values)
        at = step_snapshot(step, list(numbers))
        self._put(tuple(numbers), tuple(numbers.values()), at, clock.wall())
        self._state.start = None

    def add_graph(
        self,
        graph: AnyGraph | None = None,
        global_step: int | None = None,
        graph_def: AnyGraph | None = None,
    ) -> None:
        """Add a graph for TensorBoard's graph tab, as for ``encode_graph``; step None: 0.

        Raises ValueError unless exactly one of ``graph`` and ``graph_def`` is given.
        """
        self._add(_graph_event(graph, graph_def, step_or_zero(global_step, "the graph")))

    def add_run_metadata(
        self, run_metadata: bytes | Message, tag: str, global_step: int | None = None
    ) -> None:
        """Add a ``RunMetadata`` of TensorFlow, or its bytes, for TensorBoard's graph tab.

        Of several with a ``tag``, TensorBoard shows the last. Raises TypeError or ValueError
        for anything else.
        """
        encoded = serialized(run_metadata, "run_metadata must be a message or the bytes of one")
        record = proto.text_field(1, checked_tag(tag)) + proto.bytes_field(2, encoded)
        at = step_or_zero(global_step, "the run metadata")
        self._add(Event(clock.wall(), at, tagged_run_metadata=record))

    def graph(self, graph: GraphLike) -> None:
        """Add ``graph``, unless it is in the file already."""
        if graph not in self._state.graphs and self._add(_graph_event(graph, None, 0)):
            self._state.graphs.add(graph)

    def add_event(self, event: Message) -> None:
        """Add an ``Event`` of runhooks or Protocol Buffers, or raise TypeError."""
        if isinstance(event, Event):
            self._add(event)
            return
        seconds, step = getattr(event, "wall_time", None), getattr(event, "step", None)
        if seconds is None or step is None or not hasattr(event, "SerializeToString"):
            raise TypeError(f"event must be an Event, got {event!r}")
        self._add(EncodedEvent(seconds, step, event.SerializeToString()))

    def _add(self, event: Any, nbytes: int = 0) -> bool:
        if self._closed:
            self._refuse()
        return super()._add(event, nbytes)

    def _refuse(self, *item: Any) -> None:
        raise RuntimeError(f"the event writer of {self._logdir!r} is closed: reopen() it first")


def _graph_event(graph: AnyGraph | None, graph_def: AnyGraph | None, step: int) -> Event:
    arguments.exactly_one(graph=graph, graph_def=graph_def)
    given = graph if graph is not None else graph_def
    return Event(clock.wall(), step, graph_def=encode_graph(given))


def encode_graph(graph: AnyGraph | None) -> bytes:
    """Return a graph of runhooks or TensorFlow, or a ``GraphDef``, as the bytes of a ``GraphDef``.

    A graph of runhooks is written as names, types, inputs and control inputs.

    Raises:
        TypeError: It is not a graph.
        ValueError: It is bytes, but not of a ``GraphDef``.
    """
    as_graph_def = getattr(graph, "as_graph_def", None)
    message: Any = graph if as_graph_def is None else as_graph_def(add_shapes=True)
    if not hasattr(message, "get_operations"):
        rule = "graph must be a Graph of runhooks or TensorFlow, or a GraphDef or the bytes of one"
        return serialized(message, rule)
    nodes = [proto.bytes_field(1, _node(it)) for it in message.get_operations()]
    return b"".join((*nodes, proto.bytes_field(4, proto.varint_field(1, _PRODUCER))))


def _node(operation: Any) -> bytes:
    inputs = [tensor.name.removesuffix(":0") for tensor in operation.inputs]
    controls = [f"^{control.name}" for control in operation.control_inputs]
    parts = [proto.bytes_field(1, operation.name.encode())]
    parts.append(proto.bytes_field(2, operation.type.encode()))
    return b"".join((*parts, *(proto.bytes_field(3, it.encode()) for it in inputs + controls)))


#: What has the START of a session: directories, or other writers.
_started: weakref.WeakKeyDictionary[RawSession, dict[str | int, Any]] = weakref.WeakKeyDictionary()


def mark_start(
    session: RawSession,
    step: int | None,
    writer: Any,
    add: Callable[[SessionLog, int], object] | None = None,
) -> None:
    """Write, by ``add`` if given, that ``session`` starts after ``step``, if it is not None.

    Once for each session and directory, so that readers drop what is made again.
    """
    key = _path_of(writer) if isinstance(writer, FileWriter) else id(writer)
    started = _started.setdefault(session, {})
    if step is not None and key not in started:
        started[key] = writer
        (add or writer.add_session_log)(SessionLog(SessionStatus.START), step + 1)


class SessionFiles:
    """The directories in which a loop marks where it resumes.

    They are what its thread, or any thread if there is one loop, asks ``FileWriterCache`` for, and
    those of writers that hooks hold.
    """

    #: Changed inside ``SharedFile.lock``.
    begun: ClassVar[list[weakref.ref[SessionFiles]]] = []

    def __init__(self) -> None:
        self._paths: dict[str, None] = {}
        self._session: RawSession | None = None
        self._step: int | None = None
        self._thread = 0

    def begin(self) -> None:
        with SharedFile.lock:
            self._thread = threading.get_ident()
            self.begun.append(weakref.ref(self))

    def start(self, session: RawSession, hooks: Iterable[Any]) -> None:
        """Mark where ``session`` resumes, also in directories that come later."""
        self._paths |= {_path_of(it): None for hook in hooks for it in _held_by(hook)}
        # One that begins anew may be another trial, and hides nothing.
        has_resumed = session.checkpoint is not None or session.recoveries > 0
        self._session, self._step = session, session.global_step if has_resumed else None
        for path in self._paths:
            mark_start(session, self._step, FileWriterCache.writer(path))

    def end(self) -> None:
        self._session = None
        with SharedFile.lock:
            self.begun[:] = [it for it in self.begun if it() not in (None, self)]

    @classmethod
    def note(cls, *writers: FileWriter) -> None:
        """Give the directories of ``writers`` to the loop that asked for them."""
        with SharedFile.lock:
            begun = [it for ref in cls.begun if (it := ref()) is not None]
            own = [it for it in begun if it._thread == threading.get_ident()]
            if own or len(begun) == 1:
                for writer in writers:
                    (own or begun)[-1]._take(writer)

    @classmethod
    def note_held(cls, hook: Any) -> None:
        cls.note(*_held_by(hook))

    def _take(self, writer: FileWriter) -> None:
        self._paths[_path_of(writer)] = None
        # A start would hide what another writer has written to the file since.
        if self._session is not None and writer.is_alone:
            mark_start(self._session, self._step, writer)


def _path_of(writer: FileWriter) -> str:
    return identity(writer.get_logdir())


def _held_by(hook: Any) -> list[FileWriter]:
    values = vars(hook).values() if hasattr(hook, "__dict__") else ()
    return [it for it in values if isinstance(it, FileWriter) and FileWriterCache.has(it)]


class FileWriterCache:
    """Shares one writer per directory, for any thread.

    Where a session resumes, readers leave out what was written from that step on in each directory
    that its loop or hooks ask for.
    """

    _writers: ClassVar[dict[str, FileWriter]] = {}

    @classmethod
    def get(cls, logdir: str | os.PathLike[str]) -> FileWriter:
        """Return the writer of ``logdir``; on ranks but the chief, of ``rank-1`` and so on in it.

        If it was closed, or its file deleted, it continues in a new one. Raises OSError if none can
        be made.
        """
        writer = cls.writer(identity(os.fspath(rank_folder(place(logdir=logdir)))))
        SessionFiles.note(writer)
        return writer

    @classmethod
    def writer(cls, path: str) -> FileWriter:
        with SharedFile.lock:
            if path not in cls._writers:
                cls._writers[path] = FileWriter(path)
            cls._writers[path].reopen()
            return cls._writers[path]

    @classmethod
    def has(cls, writer: FileWriter) -> bool:
        return cls._writers.get(_path_of(writer)) is writer

    @classmethod
    def clear(cls) -> None:
        """Close and forget all writers; then raise the first error, if any."""
        with SharedFile.lock:
            writers = list(cls._writers.values())
            cls._writers.clear()
        call_all(writer.close for writer in writers)
