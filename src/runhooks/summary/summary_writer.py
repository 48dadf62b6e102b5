"""``SummaryWriter``: what all writers of summaries have in common, a method for each kind."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from runhooks import arguments
from runhooks.events import Message
from runhooks.events.one_line import one_line
from runhooks.summary.address import address, checked_step, global_step
from runhooks.summary.graph_def import GraphLike
from runhooks.summary.kinds.audio import clip_value
from runhooks.summary.kinds.custom_scalars import Chart, custom_scalars_value
from runhooks.summary.kinds.histogram import histogram_value
from runhooks.summary.kinds.hparams import hparams_values
from runhooks.summary.kinds.mesh import mesh_values
from runhooks.summary.kinds.picture import picture_value
from runhooks.summary.kinds.pr_curve import pr_curve_value
from runhooks.summary.kinds.scalar import numbers_now, scalar_value
from runhooks.summary.kinds.tensor import tensor_value
from runhooks.summary.kinds.text import text_value
from runhooks.summary.message import Summary


class SummaryWriter(ABC):
    """Writes what a training loop has to show; where to is said by its subclasses.

    Arrays are NumPy's, JAX's, PyTorch's (on any device, with gradients or without) or
    TensorFlow's, of any real dtype, bfloat16 among them, or lists of Python numbers. They are
    written as they are at the time of the call, which does not wait for a device: they are read
    when they are written, in the background. What is wrong with their shape or dtype is then
    raised by a later call, with a note that names the tag.

    NaN and infinities never raise: what is finite is shown, and the log says once for each tag how
    many there were.

    ``tag``: a str that is not empty. ``step``: an integer of 64 bits, which may be an array of size
    1 of any of these libraries. For any other, methods raise TypeError or ValueError.

    All methods that write raise RuntimeError if the writer is closed.
    """

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether it is closed."""

    @abstractmethod
    def add_summary(self, summary: bytes | Message, global_step: int | None = None) -> None:
        """Add ``summary``: a ``Summary``, or one of Protocol Buffers, or the bytes of one.

        Without a ``global_step`` it is of step 0. Raises TypeError if it is none of these.
        """

    @abstractmethod
    def flush(self) -> None:
        """Return when all that was added before is written; raises what went wrong with it."""

    @abstractmethod
    def close(self) -> None:
        """Flush, and write no more; again: nothing happens."""

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        """Add ``session_log``, a ``SessionLog``; a writer that has no place for one drops it."""
        return

    def graph(self, graph: GraphLike) -> None:
        """Write ``graph``, a ``Graph`` of ours or of TensorFlow, for TensorBoard's graph tab.

        A writer that has no place for a graph drops it: only event files have one.
        """
        return

    def scalar(self, tag: str, value: Any, step: int) -> None:
        """Write one number, ``value``: a Python number or an array of size 1, as float32."""
        at = address(tag, step)
        self.add_summary(Summary([scalar_value(tag, value)]), at)

    def scalars(self, step: int, values: Mapping[str, Any]) -> None:
        """Write several numbers of one step, by tag, as ``scalar`` does."""
        numbers = numbers_now(values)
        at = checked_step(step, list(numbers))
        self.add_summary(Summary(itertools.starmap(scalar_value, numbers.items())), at)

    def histogram(self, tag: str, values: Any, step: int) -> None:
        """Write how the numbers of ``values`` are spread: any shape, any real dtype.

        They may have been counted already: ``HistogramCounts``. If there are NaN or infinities,
        the scalars ``tag/nan_count`` and ``tag/inf_count`` say how many.
        """
        at = address(tag, step)
        arguments.given(values=values)
        self.add_summary(Summary([histogram_value(tag, values)]), at)

    def image(self, tag: str, image: Any, step: int, data_format: str | None = None) -> None:
        """Write an image, or a batch of images under one tag.

        ``image``: uint8 (0 to 255), bool (black and white), or a float type of the range 0.0 to
        1.0; what is beyond is cut off, which the log says once for each tag, and a pixel that is
        not finite is red, or white in gray.
        ``data_format``: what its axes are: ``"HW"``, ``"HWC"``, ``"CHW"``, ``"NHW"``, ``"NHWC"``
        or ``"NCHW"``, with 1 channel (gray), 3 (RGB) or 4 (RGBA); if None, by their number
        ``"HW"``, ``"HWC"`` or ``"NHWC"``.

        Raises ValueError for another ``data_format``.
        """
        at = address(tag, step)
        arguments.given(image=image)
        self.add_summary(Summary([picture_value(tag, image, data_format)]), at)

    def audio(self, tag: str, samples: Any, step: int, sample_rate: float) -> None:
        """Write a clip of sound, or a batch of clips under one tag, as WAV of 16 bits.

        ``samples``: ``[frames]``, ``[frames, channels]`` or ``[N, frames, channels]``, a float type
        of the range -1.0 to 1.0, what is beyond is cut off and what is NaN is silent; or int16.
        At most 8 channels. ``sample_rate``: frames a second.

        Raises TypeError or ValueError if ``sample_rate`` is no finite number above 0.
        """
        at = address(tag, step)
        arguments.given(samples=samples)
        self.add_summary(Summary([clip_value(tag, samples, sample_rate)]), at)

    def text(self, tag: str, text: Any, step: int) -> None:
        """Write ``text``, a str or an array of them, which TensorBoard shows as Markdown.

        An array of one or two dimensions is shown as a table.
        """
        at = address(tag, step)
        arguments.given(text=text)
        self.add_summary(Summary([text_value(tag, text)]), at)

    def tensor(self, tag: str, value: Any, step: int) -> None:
        """Write an array as it is, of any shape, numbers of any dtype or strings, for later use.

        TensorBoard keeps it, but has no page for it. Types that NumPy has not, bfloat16 and
        float8, are read back as float32.
        """
        at = address(tag, step)
        arguments.given(value=value)
        self.add_summary(Summary([tensor_value(tag, value)]), at)

    def hparams(
        self,
        hparams: Mapping[str, Any],
        metrics: Mapping[str, Any] | None = None,
        step: int | None = None,
    ) -> None:
        """Write the hyperparameters of this run, and how well it did with them.

        ``hparams``: bools, numbers and strs by name; anything else is written as its ``str``.
        ``metrics``: numbers by tag, each written as a scalar of ``step`` too, which must be given
        then: the step that the run has come to; with them it counts as finished. Without them,
        call this at the start of a run: TensorBoard then shows the run beside the last of each of
        its scalars.
        """
        values = hparams_values(hparams, {} if metrics is None else metrics)
        checked = checked_step if metrics else global_step
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
        """Write precision and recall of a binary classifier at ``num_thresholds`` thresholds.

        ``labels``: bools, or 0 and 1. ``predictions``: how likely each is true, 0.0 to 1.0; those
        that are not finite are left out. ``weights``: how much each counts, not negative, 1 if
        None. All three have the same shape, any. The thresholds are spread evenly from 0 to 1.

        Raises ValueError if ``num_thresholds`` is below 2.
        """
        at = address(tag, step)
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
        """Write a point cloud, or a mesh of triangles, in three dimensions; or a batch of them.

        ``vertices``: float ``[N, vertices, 3]``, x, y and z. ``colors``: integers 0 to 255
        ``[N, vertices, 3]``, RGB of each vertex. ``faces``: integers ``[N, faces, 3]``, the three
        vertices of each. All may be given without their first axis. ``config``: the classes of
        three.js that draw it and their options, such as ``{"material": {"cls":
        "PointsMaterial", "size": 0.1}}``.
        """
        at = address(tag, step)
        self.add_summary(Summary(mesh_values(tag, vertices, colors, faces, config)), at)

    def custom_scalars(self, layout: Mapping[str, Mapping[str, Chart]] | Message) -> None:
        """Say which scalars TensorBoard shows in one chart, on its page of custom scalars.

        ``layout``: by category, by title, a chart: a list of tags, or ``Margin(value, lower,
        upper)`` of tags. A tag is a regular expression, which may match several. Or a
        ``layout_pb2.Layout`` of TensorBoard. The last of a run counts.
        """
        self.add_summary(Summary([custom_scalars_value(layout)]), 0)

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
            exc.add_note(f"and then the writer failed to close: {one_line(error)}")
