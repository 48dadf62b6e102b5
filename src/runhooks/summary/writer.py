"""Base classes of summary writers, and several as one."""

from __future__ import annotations

import itertools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

from runhooks import clock
from runhooks.arrays.values import NUMBERS
from runhooks.errors import add_note, call_all, error_text
from runhooks.events import Message, SessionStatus
from runhooks.events.writing.write_queue import WriteQueue
from runhooks.summary.media import clip_value, picture_value
from runhooks.summary.message import (
    Summary,
    checked_step,
    checked_tag,
    nbytes_of,
    session_log_event,
    step_for,
    step_or_zero,
    step_snapshot,
    summary_event,
)
from runhooks.summary.plugins import (
    Chart,
    custom_scalars_value,
    hparams_values,
    mesh_values,
    pr_curve_value,
)
from runhooks.summary.values import (
    histogram_value,
    kept_number,
    kept_numbers,
    scalar_value,
    tensor_value,
    text_value,
)


class ClosedAtEnd(ABC):
    @abstractmethod
    def close(self) -> None:
        """Flush, and write no more. Closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception as error:
            if exc is None:
                raise
            add_note(exc, f"and then the writer failed to close: {error_text(error)}")


class GraphLike(Protocol):
    """Anything that lists operations with ``name``, ``type``, ``inputs`` and ``control_inputs``.

    ``inputs`` are tensors, with names such as ``"loss:0"``.
    """

    def get_operations(self) -> Iterable[Any]: ...


class Writer(ClosedAtEnd):
    """Base class of summary writers; subclasses decide where to write.

    Arrays of any library that ``runhooks.arrays`` knows, on any device, of any real dtype, bfloat16
    too, or lists of numbers, are written as they are at the call, and read in the background.

    ``tag`` is a non-empty str; ``step`` a 64-bit integer, or an array of one. A shape, dtype or
    structure that cannot be written raises TypeError or ValueError; if it is found only when the
    values are read, a later call raises it, with a note that names the tag. NaN and infinities
    never raise: one warning per tag counts them. Methods that write raise RuntimeError if the
    writer is closed.
    """

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether it is closed."""

    @abstractmethod
    def add_summary(self, summary: bytes | Message, global_step: int | None = None) -> None:
        """Add a ``Summary`` of runhooks or Protocol Buffers, or the bytes of one; step None: 0."""

    @abstractmethod
    def flush(self) -> None:
        """Return when everything added before is written; raise the first error, if any."""

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        """Add a ``SessionLog``, if the destination has a place for it."""
        return

    def graph(self, graph: GraphLike) -> None:
        """Write a graph of runhooks or TensorFlow; only event files hold it."""
        return

    def scalar(self, tag: str, value: Any, step: int) -> None:
        """Write ``value``, a number or an array of size 1, as float32."""
        self.add_summary(Summary([scalar_value(tag, value)]), step_for(tag, step))

    def scalars(self, values: Mapping[str, Any], step: int) -> None:
        """Write several numbers of one step, by tag, as ``scalar`` does."""
        numbers = kept_numbers(values)
        at = checked_step(step, list(numbers))
        self.add_summary(Summary(itertools.starmap(scalar_value, numbers.items())), at)

    def histogram(self, tag: str, values: Any, step: int) -> None:
        """Write how ``values`` are distributed, as for ``histogram_value``."""
        self.add_summary(Summary([histogram_value(tag, values)]), step_for(tag, step))

    def image(self, tag: str, image: Any, step: int, data_format: str | None = None) -> None:
        """Write an image, or a batch of images under one tag, as for ``picture_value``."""
        self.add_summary(Summary([picture_value(tag, image, data_format)]), step_for(tag, step))

    def audio(self, tag: str, samples: Any, step: int, sample_rate: float) -> None:
        """Write an audio clip, or a batch of clips under one tag, as for ``clip_value``."""
        self.add_summary(Summary([clip_value(tag, samples, sample_rate)]), step_for(tag, step))

    def text(self, tag: str, text: Any, step: int) -> None:
        """Write ``text``, a str or an array of them, as for ``text_value``."""
        self.add_summary(Summary([text_value(tag, text)]), step_for(tag, step))

    def tensor(self, tag: str, value: Any, step: int) -> None:
        """Write an array as it is, as for ``tensor_value``; TensorBoard has no page for it.

        ``events.read`` returns dtypes that NumPy lacks, such as bfloat16, as float32.
        """
        self.add_summary(Summary([tensor_value(tag, value)]), step_for(tag, step))

    def hparams(
        self,
        hparams: Mapping[str, Any],
        metrics: Mapping[str, Any] | None = None,
        step: int | None = None,
    ) -> None:
        """Write the hyperparameters of this run and its metrics, as for ``hparams_values``.

        Without metrics, TensorBoard shows the last value of each scalar that comes later. With
        them, which are written as scalars too, ``step`` must be given.
        """
        values = hparams_values(hparams, {} if metrics is None else metrics)
        checked = checked_step if metrics else step_or_zero
        self.add_summary(Summary(values), checked(step, "the metrics of hparams"))

    def pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        step: int,
        num_thresholds: int = 127,
        weights: Any = None,
    ) -> None:
        """Write the precision-recall curve of a binary classifier, as for ``pr_curve_value``."""
        value = pr_curve_value(tag, labels, predictions, num_thresholds, weights)
        self.add_summary(Summary([value]), step_for(tag, step))

    def mesh(
        self,
        tag: str,
        vertices: Any,
        step: int,
        colors: Any = None,
        faces: Any = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a point cloud, a mesh of triangles, or a batch, as for ``mesh_values``."""
        values = mesh_values(tag, vertices, colors, faces, config)
        self.add_summary(Summary(values), step_for(tag, step))

    def custom_scalars(self, layout: Mapping[str, Mapping[str, Chart]] | Message) -> None:
        """Write which scalars TensorBoard shows together, as for ``custom_scalars_value``."""
        self.add_summary(Summary([custom_scalars_value(layout)]), 0)


class FileState:
    """What is in a file already.

    ``start`` is the step of a ``START`` that nothing of that step or later came after; ``starts``
    how many were written.
    """

    __slots__ = ("graphs", "start", "starts")

    def __init__(self) -> None:
        self.starts = 0
        self.begin()

    def begin(self) -> None:
        self.start: int | None = None
        self.graphs: weakref.WeakSet[Any] = weakref.WeakSet()


class QueuedWriter(Writer):
    """Writes through ``queue``, with a ``state`` if other writers do so, too."""

    def __init__(self, queue: WriteQueue, state: FileState | None = None) -> None:
        self._queue = queue
        self._put: Callable[[Any, Any, Any, float], object] = queue.put
        self._state = FileState() if state is None else state

    @property
    def closed(self) -> bool:
        return self._queue.closed

    @property
    def starts(self) -> int:
        """How many sessions started in its file."""
        return self._state.starts

    def scalar(self, tag: str, value: Any, step: int) -> None:
        # The common case is cheap.
        if type(tag) is not str or not tag or type(step) is not int or step >> 63:
            step = step_snapshot(step, repr(checked_tag(tag)))
        self._state.start = None
        if type(value) is not float and type(value) not in NUMBERS:
            value = kept_number(tag, value)
        self._put(tag, value, step, clock.wall())

    def scalars(self, values: Mapping[str, Any], step: int) -> None:
        numbers = kept_numbers(values)
        at, now = step_snapshot(step, list(numbers)), clock.wall()
        for tag, number in numbers.items():
            self._put(tag, number, at, now)
        self._state.start = None

    def add_summary(self, summary: bytes | Message, global_step: int | None = None) -> None:
        self._add(summary_event(summary, global_step), nbytes=nbytes_of(summary))

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        """Add a ``SessionLog``.

        Not a ``START`` at the step of the last, if nothing of that step or later came since.
        """
        event = session_log_event(session_log, global_step)
        if session_log.status != SessionStatus.START:
            self._add(event)
        elif event.step != self._state.start and self._add(event):
            self._state.start = event.step
            self._state.starts += 1

    def flush(self) -> None:
        self._queue.flush()

    def close(self) -> None:
        self._queue.close()

    def reopen(self) -> None:
        """Continue after it was closed, or in a new file if its own was deleted."""
        if self._queue.reopen():
            self._state.begin()

    def _add(self, event: Any, nbytes: int = 0) -> bool:
        is_added = self._queue.put_message(event, nbytes)
        if self._state.start is not None and event.step >= self._state.start:
            self._state.start = None
        return is_added


class AnyWriter(Protocol):
    """A ``summary_writer``, which may also have ``add_session_log``, ``flush`` and ``close``."""

    def add_summary(self, summary: Any, global_step: Any = None) -> None: ...


def adapted(writer: AnyWriter) -> Writer:
    """Return a ``Writer`` that writes with ``writer``, which is given ``Summary`` objects.

    On a graph of TensorFlow, it is given messages of TensorFlow.

    Raises:
        TypeError: It has no ``add_summary``.
    """
    if isinstance(writer, Writer):
        return writer
    if not hasattr(writer, "add_summary"):
        raise TypeError(
            f"summary_writer must have add_summary(summary, step), got {writer!r}; in place of a "
            "SummaryWriter of PyTorch or tensorboardX, use that of runhooks.tensorboard"
        )
    return _Adapter(writer)


class _Adapter(Writer):
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    @property
    def closed(self) -> bool:
        return bool(getattr(self._writer, "closed", False))

    def add_summary(self, summary: bytes | Message, global_step: int | None = None) -> None:
        self._writer.add_summary(summary, global_step)

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        self._call("add_session_log", session_log, global_step)

    def flush(self) -> None:
        self._call("flush")

    def close(self) -> None:
        self._call("close")

    def _call(self, name: str, *arguments: Any) -> None:
        method = getattr(self._writer, name, None)
        if method is not None:
            method(*arguments)


class MultiWriter(Writer):
    """Passes everything to several writers, of any kind that a hook takes.

    The first error is raised once all have been called, with notes on the others.

    Raises:
        TypeError: One is not a writer.
        ValueError: There is none, or one is given twice.
    """

    def __init__(self, writers: Iterable[AnyWriter]) -> None:
        if isinstance(writers, str | Writer) or not isinstance(writers, Iterable):
            raise TypeError(f"writers must be a list of writers, got {writers!r}")
        self._writers = [adapted(writer) for writer in writers]
        if not self._writers or len(set(map(id, self._writers))) < len(self._writers):
            raise ValueError(f"writers must be one or more, each of them once, got {writers!r}")

    @property
    def closed(self) -> bool:
        """Whether all of them are closed."""
        return all(writer.closed for writer in self._writers)

    def scalar(self, tag: str, value: Any, step: int) -> None:
        call_all(partial(writer.scalar, tag, value, step) for writer in self._writers)

    def scalars(self, values: Mapping[str, Any], step: int) -> None:
        call_all(partial(writer.scalars, values, step) for writer in self._writers)

    def add_summary(self, summary: bytes | Message, global_step: int | None = None) -> None:
        call_all(partial(writer.add_summary, summary, global_step) for writer in self._writers)

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        call_all(
            partial(writer.add_session_log, session_log, global_step) for writer in self._writers
        )

    def graph(self, graph: GraphLike) -> None:
        call_all(partial(writer.graph, graph) for writer in self._writers)

    def flush(self) -> None:
        call_all(writer.flush for writer in self._writers)

    def close(self) -> None:
        call_all(writer.close for writer in self._writers)
