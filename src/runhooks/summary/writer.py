"""``Writer``: the base of all writers of summaries, with a method for each kind.

``QueuedWriter`` is the base of those that write in the background.
"""

from __future__ import annotations

import itertools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from runhooks import clock
from runhooks.arrays.values import NUMBERS
from runhooks.errors import add_note, error_text
from runhooks.events import Message, SessionStatus
from runhooks.events.writing.write_queue import WriteQueue
from runhooks.summary.graph_def import GraphLike
from runhooks.summary.kinds.audio import clip_value
from runhooks.summary.kinds.custom_scalars import Chart, custom_scalars_value
from runhooks.summary.kinds.histogram import histogram_value
from runhooks.summary.kinds.hparams import hparams_values
from runhooks.summary.kinds.image import picture_value
from runhooks.summary.kinds.mesh import mesh_values
from runhooks.summary.kinds.pr_curve import pr_curve_value
from runhooks.summary.kinds.scalar import kept_number, kept_numbers, scalar_value
from runhooks.summary.kinds.tensor import tensor_value, text_value
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


class ClosedAtEnd(ABC):
    """Is closed at the end of a ``with`` block."""

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


class Writer(ClosedAtEnd):
    """Base class of summary writers; subclasses decide where to write.

    Arrays may come from NumPy, JAX, PyTorch (on any device, with or without gradients), TensorFlow
    or any library registered with ``runhooks.arrays.register``, in any real dtype, including
    bfloat16; lists of Python numbers work too. Their values at the time of the call are written.
    The call does not wait for a device; the arrays are read later, in the background.

    A method raises TypeError or ValueError for a shape, dtype or structure that it cannot write. An
    error found only when the values are read is raised by a later call, with a note that names the
    tag. NaN and infinities never raise: the finite numbers are shown, and one warning per tag says
    how many were not finite.

    ``tag`` is a non-empty str. ``step`` is a 64-bit integer, which may be an array of size 1 of any
    of these libraries.

    All methods that write raise RuntimeError if the writer is closed, except for the
    ``SummaryWriter`` of ``runhooks.tensorboard``, which opens a new file, as torch's does.
    """

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether it is closed."""

    @abstractmethod
    def add_summary(self, summary: bytes | Message, global_step: int | None = None) -> None:
        """Add ``summary``.

        Args:
            summary: A ``Summary`` from runhooks or Protocol Buffers, or the bytes of one.
            global_step: Its step; None: 0.

        Raises:
            TypeError: ``summary`` is something else.
        """

    @abstractmethod
    def flush(self) -> None:
        """Return when everything added before is written; raise the first error, if any."""

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        """Add ``session_log``, a ``SessionLog``. A writer without a place for it drops it."""
        return

    def graph(self, graph: GraphLike) -> None:
        """Write ``graph``, of runhooks or TensorFlow, for TensorBoard's graph tab.

        Only event files can hold it; other writers drop it.
        """
        return

    def scalar(self, tag: str, value: Any, step: int) -> None:
        """Write ``value``, a number or an array of size 1, as float32."""
        at = step_for(tag, step)
        self.add_summary(Summary([scalar_value(tag, value)]), at)

    def scalars(self, values: Mapping[str, Any], step: int) -> None:
        """Write several numbers of one step, by tag, as ``scalar`` does."""
        numbers = kept_numbers(values)
        at = checked_step(step, list(numbers))
        self.add_summary(Summary(itertools.starmap(scalar_value, numbers.items())), at)

    def histogram(self, tag: str, values: Any, step: int) -> None:
        """Write how ``values`` are distributed.

        Args:
            tag: Their tag. If there are NaN or infinities, the scalars ``tag/nan_count`` and
                ``tag/inf_count`` say how many.
            values: An array of any shape and real dtype, or ``HistogramCounts``.
            step: The step.
        """
        at = step_for(tag, step)
        self.add_summary(Summary([histogram_value(tag, values)]), at)

    def image(self, tag: str, image: Any, step: int, data_format: str | None = None) -> None:
        """Write an image, or a batch of images under one tag.

        Args:
            tag: The tag.
            image: uint8 (0 to 255), bool (black and white), or floats from 0.0 to 1.0. Other values
                are clipped, with one warning per tag; a non-finite pixel is red, or white in gray
                images.
            step: The step.
            data_format: What its axes are: ``"HW"``, ``"HWC"``, ``"CHW"``, ``"NHW"``, ``"NHWC"``
                or ``"NCHW"``, with 1 channel (gray), 3 (RGB) or 4 (RGBA). None: ``"HW"``,
                ``"HWC"`` or ``"NHWC"``, by their number.
        """
        at = step_for(tag, step)
        self.add_summary(Summary([picture_value(tag, image, data_format)]), at)

    def audio(self, tag: str, samples: Any, step: int, sample_rate: float) -> None:
        """Write an audio clip, or a batch of clips under one tag, as 16-bit WAV.

        Args:
            tag: The tag.
            samples: ``[frames]``, ``[frames, channels]`` or ``[N, frames, channels]`` with at most
                8 channels: int16, or floats from -1.0 to 1.0. Other values are clipped, and NaN is
                silent.
            step: The step.
            sample_rate: Frames a second.
        """
        at = step_for(tag, step)
        self.add_summary(Summary([clip_value(tag, samples, sample_rate)]), at)

    def text(self, tag: str, text: Any, step: int) -> None:
        """Write ``text``, a str or an array of them, which TensorBoard shows as Markdown.

        It shows an array of one or two dimensions as a table.
        """
        at = step_for(tag, step)
        self.add_summary(Summary([text_value(tag, text)]), at)

    def tensor(self, tag: str, value: Any, step: int) -> None:
        """Write an array as it is: any shape, numbers of any dtype, or strings.

        TensorBoard has no page for it. ``events.read`` returns dtypes that NumPy lacks, such as
        bfloat16, as float32.
        """
        at = step_for(tag, step)
        self.add_summary(Summary([tensor_value(tag, value)]), at)

    def hparams(
        self,
        hparams: Mapping[str, Any],
        metrics: Mapping[str, Any] | None = None,
        step: int | None = None,
    ) -> None:
        """Write the hyperparameters of this run and its resulting metrics.

        Args:
            hparams: bools, numbers and strs by name; anything else is written as its ``str``.
            metrics: Numbers by tag, each written as a scalar too; with them, the run counts as
                finished. Without them, call this at the start of a run: TensorBoard then shows the
                run with the last value of each of its scalars.
            step: The step of the metrics, which must be given with them.
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
        """Write the precision-recall curve of a binary classifier.

        Args:
            tag: The tag.
            labels: bools, or 0 and 1, of any shape.
            predictions: How likely each label is true, 0.0 to 1.0, of the same shape. Those that
                are not finite are left out.
            step: The step.
            num_thresholds: The number of thresholds, evenly spaced from 0 to 1; at least 2.
            weights: The weight of each, not negative, of the same shape; None: 1.
        """
        at = step_for(tag, step)
        value = pr_curve_value(tag, labels, predictions, num_thresholds, weights)
        self.add_summary(Summary([value]), at)

    def mesh(
        self,
        tag: str,
        vertices: Any,
        step: int,
        colors: Any = None,
        faces: Any = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a point cloud, or a mesh of triangles, or a batch of them.

        All arrays may be given without their first axis.

        Args:
            tag: The tag.
            vertices: float ``[N, vertices, 3]``, x, y and z.
            step: The step.
            colors: Integers 0 to 255 ``[N, vertices, 3]``, RGB of each vertex.
            faces: Integers ``[N, faces, 3]``, the three vertices of each triangle.
            config: Classes of three.js that draw it and their options, such as
                ``{"material": {"cls": "PointsMaterial", "size": 0.1}}``.
        """
        at = step_for(tag, step)
        self.add_summary(Summary(mesh_values(tag, vertices, colors, faces, config)), at)

    def custom_scalars(self, layout: Mapping[str, Mapping[str, Chart]] | Message) -> None:
        """Write which scalars TensorBoard shows together, on its custom scalars page.

        Args:
            layout: By category, by title, a chart: a list of tags, or ``Margin(value, lower,
                upper)`` of tags. A tag is a regular expression, which may match several. Or a
                ``layout_pb2.Layout`` of TensorBoard. The last layout of a run counts.
        """
        self.add_summary(Summary([custom_scalars_value(layout)]), 0)


class FileState:
    """What is in a file already, and need not be written again.

    Attributes:
        start: The step of a ``START`` that nothing of that step or later came after; None if none.
        starts: How many were written.
        graphs: The graphs that are in the file.
    """

    __slots__ = ("graphs", "start", "starts")

    def __init__(self) -> None:
        self.starts = 0
        self.begin()

    def begin(self) -> None:
        """Note that a new file begins."""
        self.start: int | None = None
        self.graphs: weakref.WeakSet[Any] = weakref.WeakSet()


class QueuedWriter(Writer):
    """Writes through a ``WriteQueue``.

    Args:
        queue: The queue.
        state: What is in its file, if other writers write through it too.
    """

    def __init__(self, queue: WriteQueue, state: FileState | None = None) -> None:
        self._queue = queue
        self._put: Callable[[Any, Any, Any, float], object] = queue.put
        self._state = FileState() if state is None else state

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._queue.closed

    @property
    def starts(self) -> int:
        """How many times it, or another writer of its file, has written that a session starts."""
        return self._state.starts

    def scalar(self, tag: str, value: Any, step: int) -> None:
        # The common case costs next to nothing: a str, a float and an int above zero.
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
        """Add ``session_log``: our ``SessionLog``, or one of Protocol Buffers.

        A ``START`` is left out if the last one was at the same step, and nothing of that step or
        later has been added since.
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
        """Continue after it was closed or its file was deleted, in a new file if it has one."""
        if self._queue.reopen():
            self._state.begin()

    def _add(self, event: Any, nbytes: int = 0) -> bool:
        """Add ``event``; return whether it was, and not dropped."""
        is_added = self._queue.put_message(event, nbytes)
        if self._state.start is not None and event.step >= self._state.start:
            self._state.start = None
        return is_added
