"""``FileWriter``: summaries into an event file; ``FileWriterCache``: one for each directory."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

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
from runhooks.summary.graph_def import AnyGraph, GraphLike, encode_graph
from runhooks.summary.kinds.scalar import kept_numbers
from runhooks.summary.message import (
    EncodedEvent,
    checked_tag,
    step_or_zero,
    step_snapshot,
)
from runhooks.summary.writer import FileState, QueuedWriter


class FileOptions(NamedTuple):
    """How a writer wants its file to be written."""

    max_queue: int = MAX_QUEUE
    flush_secs: float = 120
    filename_suffix: str = ""
    on_full: OnFull = "wait"

    @property
    def are_default(self) -> bool:
        """Whether any file will do."""
        return self._replace(flush_secs=120) == FileOptions() and self.flush_secs >= LINGER_SECS


class SharedFile:
    """An event file and the writers that have it open. Any thread may use it.

    TensorBoard and ``events.read`` read the files of a directory one after the other, and a
    ``START`` drops what was read before it of later steps. With a file each, the ``START`` of one
    writer would hide what another one writes beside it.
    """

    #: Of the files that are open, and of the cache below.
    lock: ClassVar = threading.RLock()
    _by_directory: ClassVar[weakref.WeakValueDictionary[str, SharedFile]] = (
        weakref.WeakValueDictionary()
    )

    def __init__(self, queue: WriteQueue) -> None:
        self.queue = queue
        self.state = FileState()
        self._writers: weakref.WeakSet[Any] = weakref.WeakSet()

    @classmethod
    def join(cls, writer: Any, logdir: str, options: FileOptions, lazily: bool) -> SharedFile:
        """Return the file in ``logdir`` that ``writer`` is to write to, until it leaves it.

        That is the one which others have open, if ``options`` are the default; else a new one,
        which is made ``lazily``, with its first event, or now. Raises OSError if it cannot be.
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
            file._writers.add(writer)
            return file

    def is_of(self, writer: Any) -> bool:
        """Return whether ``writer`` alone has it open."""
        return set(self._writers) == {writer}

    def leave(self, writer: Any) -> None:
        """Flush; close the file if no other writer has it open.

        Raises what went wrong in the background; ``writer`` has left nevertheless.
        """
        with self.lock:
            self._writers.discard(writer)
            is_last = not self._writers
            if is_last:
                for directory, file in list(self._by_directory.items()):
                    if file is self:
                        del self._by_directory[directory]
        if is_last:
            self.queue.close()
        else:
            self.queue.flush()

    def reopen(self) -> None:
        """Continue in a new file if this one was deleted."""
        if self.queue.reopen():
            self.state.begin()

    @classmethod
    def forked(cls) -> None:
        """Forget the lock: somebody may have held it in the parent when the process was forked."""
        cls.lock = threading.RLock()
        SessionFiles.begun.clear()  # what the child writes goes on beside the parent's
        for file in list(cls._by_directory.values()):
            file.state.begin()  # the child makes files of its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SharedFile.forked)


def _queue(logdir: str, options: FileOptions, lazily: bool) -> WriteQueue:
    """Return the queue of a new event file in ``logdir``, made with its first event or now."""
    size, secs, suffix, on_full = options
    sink = EventSink(logdir, suffix)
    kind = StoreQueue if is_url(logdir) else WriteQueue
    queue = kind(sink, size, secs, on_full)
    if not lazily:
        sink.open()
    return queue


class FileWriter(QueuedWriter):
    """Writes summaries to an event file in ``logdir``, in the background.

    All writers of a directory that are open in one process share one file, including those of
    hooks, so TensorBoard shows what all of them write, in order. A writer with another
    ``max_queue``, ``filename_suffix`` or ``on_full`` than the default, or ``flush_secs`` below 0.2,
    has its own file, unless it is the first writer.

    All methods that write return before the event is written. Background errors, of the file or of
    an event, are raised once by the next call, or logged if the writer is gone without ``close``.
    The event at fault is lost or, if the file failed, all events that were being written; the error
    says how many. An event given with the call that raises is not written either, nor counted: add
    it again. The writer continues with the next one.
    After ``close``, methods raise RuntimeError; TensorFlow warns and drops the event.

    Any thread or signal handler may call any method. In a forked child, or in a process that
    unpickled it, the writer creates another file for its first event. A child that ends with
    ``os._exit`` has to flush or close the writer first; children of ``multiprocessing`` that end
    by themselves do so automatically.

    While a writer is open, and the program has no SIGTERM handler, SIGTERM first writes everything
    that was added, for at most 5 seconds, and then ends the process; like any Python handler, it
    has to wait for calls into C to return. If the file or its directory is deleted, the next calls
    raise FileNotFoundError until ``reopen``.

    Args:
        logdir: The directory, which may begin with ``~`` and is created if missing; or a URL, such
            as ``s3://bucket/run``.
        graph: A graph of runhooks or TensorFlow, or a ``GraphDef``, to write first.
        max_queue: How many events may wait to be written; a scalar is one event. (With TensorFlow's
            default of 10, a loop that adds a dozen scalars per step waits for the disk in every
            step.)
        flush_secs: Events are written 0.2 seconds after they are added, or at once if this is
            less; in a store, after ``flush_secs``. If large arrays, such as a video, were added
            before, these are encoded first. What is not written yet is lost if the process is
            killed.
        graph_def: The same, instead of ``graph``.
        filename_suffix: The end of the name of the file.
        session: As in TensorFlow, but it decides nothing: all writers of a directory share its
            file, whatever their session.
        on_full: What happens when ``max_queue`` events wait, or 256 MB of arrays: ``"wait"``
            until they are written, ``"raise"`` ``queue.Full``, or ``"drop"`` what is added and
            count it in ``dropped``.

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
        event = _graph_event(graph, graph_def, 0) if has_graph else None  # before there is a file
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
        """Whether it is closed."""
        return self._closed

    @property
    def is_alone(self) -> bool:
        """Whether no other writer has its file open."""
        return self._file.is_of(self)

    @property
    def dropped(self) -> int:
        """How many events were dropped because too many were waiting."""
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
        """Write several numbers of one step, by tag, as ``scalar`` does, in one event."""
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
        """Add a graph, as TensorBoard's graph tab shows it.

        Args:
            graph: A graph of runhooks or TensorFlow, or a ``GraphDef`` or the bytes of one.
            global_step: Its step; None: 0.
            graph_def: The same, instead of ``graph``.

        Raises:
            ValueError: Not exactly one of ``graph`` and ``graph_def`` is given.
            TypeError: It is not a graph.
        """
        self._add(_graph_event(graph, graph_def, step_or_zero(global_step, "the graph")))

    def add_run_metadata(
        self, run_metadata: bytes | Message, tag: str, global_step: int | None = None
    ) -> None:
        """Add the record of one run of a session, which TensorBoard shows in its graph tab.

        Args:
            run_metadata: A ``RunMetadata`` of TensorFlow, or the bytes of one.
            tag: Its name. Of several records of a name, TensorBoard shows the last.
            global_step: Its step; None: 0.

        Raises:
            TypeError: It is neither.
        """
        if not isinstance(run_metadata, bytes):
            if not hasattr(run_metadata, "SerializeToString"):
                raise TypeError(
                    f"run_metadata must be a message or the bytes of one, got {run_metadata!r}"
                )
            run_metadata = run_metadata.SerializeToString()
        record = proto.text_field(1, checked_tag(tag)) + proto.bytes_field(2, run_metadata)
        at = step_or_zero(global_step, "the run metadata")
        self._add(Event(clock.wall(), at, tagged_run_metadata=record))

    def graph(self, graph: GraphLike) -> None:
        """Write ``graph``, as ``add_graph`` does, unless it is in the file already."""
        if graph not in self._state.graphs and self._add(_graph_event(graph, None, 0)):
            self._state.graphs.add(graph)

    def add_event(self, event: Message) -> None:
        """Add ``event``, an ``Event`` from runhooks or Protocol Buffers, with its own time.

        Raises:
            TypeError: It is neither.
        """
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


#: The directories and other writers that have the START of a session.
_started: weakref.WeakKeyDictionary[RawSession, dict[str | int, Any]] = weakref.WeakKeyDictionary()


def mark_start(
    session: RawSession,
    step: int | None,
    writer: Any,
    add: Callable[[SessionLog, int], object] | None = None,
) -> None:
    """Write that ``session`` starts, or goes on, at the step after ``step``.

    Readers then leave out what an earlier session wrote of the steps that are made again. It is
    written once for each session, and once for each directory, whatever writers it has.

    Args:
        session: The session.
        step: The global step at which it starts; None: its graph has none, and nothing is written.
        writer: What is to have it.
        add: Writes it; None: ``writer.add_session_log``.
    """
    key = _path_of(writer) if isinstance(writer, FileWriter) else id(writer)
    started = _started.setdefault(session, {})
    if step is not None and key not in started:
        started[key] = writer
        (add or writer.add_session_log)(SessionLog(SessionStatus.START), step + 1)


class SessionFiles:
    """The directories that one loop and its hooks write to by ``FileWriterCache``.

    Each has the start of every session of the loop that has resumed, from a checkpoint or after a
    loss: one that begins anew may be another trial, or evaluate, and hides nothing. They are those
    that the thread of the loop asks the cache for from ``begin`` to ``end``, or any other thread if
    there is no other loop, and those whose writers are attributes of hooks.
    """

    #: All that have begun and not ended. Changed inside ``SharedFile.lock``.
    begun: ClassVar[list[weakref.ref[SessionFiles]]] = []

    def __init__(self) -> None:
        self._paths: dict[str, None] = {}  # in the order in which they were asked for
        self._session: RawSession | None = None
        self._step: int | None = None  # at which it has resumed
        self._thread = 0

    def begin(self) -> None:
        """Take the directories that are asked for from now on."""
        with SharedFile.lock:
            self._thread = threading.get_ident()
            self.begun.append(weakref.ref(self))

    def start(self, session: RawSession, hooks: Iterable[Any]) -> None:
        """Mark where ``session`` resumes, in all directories; those that come later get it, too."""
        self._paths |= {_path_of(it): None for hook in hooks for it in _held_by(hook)}
        has_resumed = session.checkpoint is not None or session.recoveries > 0
        self._session, self._step = session, session.global_step if has_resumed else None
        for path in self._paths:
            mark_start(session, self._step, FileWriterCache.writer(path))

    def end(self) -> None:
        """Take no more."""
        self._session = None
        with SharedFile.lock:
            self.begun[:] = [it for it in self.begun if it() not in (None, self)]

    @classmethod
    def note(cls, *writers: FileWriter) -> None:
        """Let the loop that has asked for ``writers`` take their directories."""
        with SharedFile.lock:
            begun = [it for ref in cls.begun if (it := ref()) is not None]
            own = [it for it in begun if it._thread == threading.get_ident()]
            if own or len(begun) == 1:
                for writer in writers:
                    (own or begun)[-1]._take(writer)

    @classmethod
    def note_held(cls, hook: Any) -> None:
        """Note the writers that are attributes of a hook which joins its loop."""
        cls.note(*_held_by(hook))

    def _take(self, writer: FileWriter) -> None:
        self._paths[_path_of(writer)] = None
        # A start would hide what another writer has written to the file since.
        if self._session is not None and writer.is_alone:
            mark_start(self._session, self._step, writer)


def _path_of(writer: FileWriter) -> str:
    return identity(writer.get_logdir())


def _held_by(hook: Any) -> list[FileWriter]:
    """Return the writers of the cache that are attributes of ``hook``."""
    values = vars(hook).values() if hasattr(hook, "__dict__") else ()
    return [it for it in values if isinstance(it, FileWriter) and FileWriterCache.has(it)]


class FileWriterCache:
    """Shares one writer per directory. Any thread may ask for it.

    If a hook, or the loop of a session, asks for a directory, a session that resumes writes there
    at which step it does: readers leave out what an interrupted run wrote from that step on.
    """

    _writers: ClassVar[dict[str, FileWriter]] = {}

    @classmethod
    def get(cls, logdir: str | os.PathLike[str]) -> FileWriter:
        """Return the writer of ``logdir``, however its path is spelled.

        If it was closed, or its file was deleted, it continues in a new file. If several ranks
        train together, those other than the chief get that of a directory of their own inside it:
        ``rank-1`` on rank 1.

        Raises:
            OSError: No file can be made there.
        """
        writer = cls.writer(identity(os.fspath(rank_folder(place(logdir=logdir)))))
        SessionFiles.note(writer)
        return writer

    @classmethod
    def writer(cls, path: str) -> FileWriter:
        """Return the writer of ``path``, for no loop."""
        with SharedFile.lock:
            if path not in cls._writers:
                cls._writers[path] = FileWriter(path)
            cls._writers[path].reopen()
            return cls._writers[path]

    @classmethod
    def has(cls, writer: FileWriter) -> bool:
        """Return whether ``writer`` is one that it shares."""
        return cls._writers.get(_path_of(writer)) is writer

    @classmethod
    def clear(cls) -> None:
        """Close all writers and forget them; then raise the first error, if any."""
        with SharedFile.lock:
            writers = list(cls._writers.values())
            cls._writers.clear()
        call_all(writer.close for writer in writers)
