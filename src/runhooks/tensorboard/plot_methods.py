"""``PlotMethods``: histograms, texts, tensors, curves, meshes and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from runhooks.arrays import host_form
from runhooks.summary import (
    Margin,
    SummaryMetadata,
    custom_scalars_value,
    pr_curve_value,
    tensor_value,
)
from runhooks.summary.kinds.histogram import (
    binned_histogram_value,
    counted_histogram_value,
)
from runhooks.summary.kinds.mesh import float_mesh_values
from runhooks.summary.kinds.pr_curve import counted_pr_curve_value
from runhooks.tensorboard.run_files import ArgumentError, RunFiles, refusals

_TEXT = SummaryMetadata("text")
_TEXT_SUFFIX = "/text_summary"
_TENSOR = SummaryMetadata("tensor")
_MOST_THRESHOLDS = 127
_MARGIN, _MULTILINE = "Margin", "Multiline"


class PlotMethods(RunFiles):
    """The methods of a ``SummaryWriter`` for what is plotted or read."""

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: str | int | Sequence[float] = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Add how numbers are distributed.

        Args:
            tag: Their tag. If there are NaN or infinities, which are left out, the scalars
                ``tag/nan_count`` and ``tag/inf_count`` say how many.
            values: Real numbers of any shape, at least one.
            global_step: Their step; None: 0.
            bins: ``"tensorflow"``, or what ``numpy.histogram`` takes: ``"auto"``, ``"fd"``, other
                rules, a number of bins, or their edges.
            walltime: Their time, in seconds since the epoch; None: now.
            max_bins: How many bins there may be: neighbours are put together beyond that.
        """
        edges = None if isinstance(bins, str) and bins == "tensorflow" else bins
        with refusals():
            value = binned_histogram_value(tag, values, edges, max_bins)
        self._add(value, global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,  # noqa: A002 (the name of the argument is torch's)
        max: float,  # noqa: A002
        num: float,
        sum: float,  # noqa: A002
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add a histogram that was counted elsewhere.

        Args:
            tag: The tag.
            min: The least number.
            max: The largest.
            num: How many there are.
            sum: Their sum.
            sum_squares: The sum of their squares.
            bucket_limits: The right edge of each bucket.
            bucket_counts: How many numbers each bucket holds.
            global_step: The step; None: 0.
            walltime: The time, in seconds since the epoch; None: now.
        """
        value = counted_histogram_value(
            tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts
        )
        self._add(value, global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Add a text, which TensorBoard shows as Markdown.

        Args:
            tag: Its tag.
            text_string: The text.
            global_step: Its step; None: 0.
            walltime: Its time, in seconds since the epoch; None: now.
        """
        if not isinstance(text_string, str):
            raise TypeError(f"text_string of {tag!r} must be a str, got {text_string!r}")
        value = tensor_value(tag + _TEXT_SUFFIX, [text_string], _TEXT)
        self._add(value, global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Add an array as it is: any shape, numbers of any dtype.

        Args:
            tag: Its tag.
            tensor: The array.
            global_step: Its step; None: 0.
            walltime: Its time, in seconds since the epoch; None: now.
        """
        self._add(tensor_value(tag, tensor, _TENSOR), global_step, walltime)

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: Any = None,
        num_thresholds: int = _MOST_THRESHOLDS,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add the precision-recall curve of a binary classifier.

        Args:
            tag: Its tag.
            labels: bools, or 0 and 1.
            predictions: How likely each label is true, 0.0 to 1.0.
            global_step: Its step; None: 0.
            num_thresholds: How many thresholds; 127 at most.
            weights: How much each counts, or all of them; None: 1.
            walltime: Its time, in seconds since the epoch; None: now.
        """
        if weights is not None and np.ndim(weights) == 0:
            form = host_form(predictions)
            weights = np.full(form[0] if form else np.shape(predictions), weights)
        thresholds = min(num_thresholds, _MOST_THRESHOLDS)
        with refusals():
            value = pr_curve_value(tag, labels, predictions, thresholds, weights)
        self._add(value, global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: Any = None,
        num_thresholds: int = _MOST_THRESHOLDS,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add a precision-recall curve that was counted elsewhere.

        Args:
            tag: Its tag.
            true_positive_counts: By threshold, ``[n]``, like the other five.
            false_positive_counts: The labels that are false, of those predicted true.
            true_negative_counts: The labels that are false, of those predicted false.
            false_negative_counts: The labels that are true, of those predicted false.
            precision: How many of those predicted true are true, 0.0 to 1.0.
            recall: How many of those that are true are predicted so, 0.0 to 1.0.
            global_step: Its step; None: 0.
            num_thresholds: How many thresholds it is shown with; 127 at most.
            weights: Has no effect: what is given is counted already.
            walltime: Its time, in seconds since the epoch; None: now.
        """
        counts = (
            true_positive_counts,
            false_positive_counts,
            true_negative_counts,
            false_negative_counts,
        )
        thresholds = min(num_thresholds, _MOST_THRESHOLDS)
        with refusals():
            value = counted_pr_curve_value(tag, (*counts, precision, recall), thresholds)
        self._add(value, global_step, walltime)

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Mapping[str, Any] | None = None,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add a batch of point clouds, or of meshes of triangles.

        Args:
            tag: Its tag.
            vertices: ``[N, vertices, 3]``, x, y and z.
            colors: ``[N, vertices, 3]``, RGB of each vertex, 0 to 255.
            faces: ``[N, faces, 3]``, the three vertices of each triangle.
            config_dict: Classes of three.js and their options.
            global_step: Its step; None: 0.
            walltime: Its time, in seconds since the epoch; None: now.
        """
        with refusals():
            values = float_mesh_values(tag, vertices, colors, faces, config_dict)
        self._add(values, global_step, walltime)

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Add which scalars TensorBoard shows in one chart. The last layout of a run counts.

        Args:
            layout: By category, by title, a chart: ``["Multiline", tags]``, or ``["Margin",
                [value, lower, upper]]``.
        """
        charts = {
            category: {title: _chart(title, chart) for title, chart in of_category.items()}
            for category, of_category in layout.items()
        }
        self._add(custom_scalars_value(charts), None, None)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Add a layout with one chart, of several lines; see ``add_custom_scalars``."""
        self.add_custom_scalars({category: {title: [_MULTILINE, tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Add a layout with one chart, of a line in a band; see ``add_custom_scalars``."""
        self.add_custom_scalars({category: {title: [_MARGIN, tags]}})


def _chart(title: str, chart: Sequence[Any]) -> list[str] | Margin:
    kind, tags = chart
    if kind != _MARGIN:
        return list(tags)
    if len(tags) != len(Margin._fields):
        raise ArgumentError(
            f"the margin chart {title!r} must have three tags, of a value, its lower and its upper "
            f"bound, got {tags!r}"
        )
    return Margin(*tags)
