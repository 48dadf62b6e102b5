"""Values for TensorBoard's plugins.

Field numbers are those of its ``plugins/custom_scalar/layout.proto``,
``plugins/hparams/plugin_data.proto``, ``plugins/hparams/api.proto`` and
``plugins/mesh/plugin_data.proto``, and of ``google/protobuf/struct.proto``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runhooks import arguments, clock
from runhooks.arrays import host_form, is_array, to_numpy
from runhooks.events import Message
from runhooks.events.format import proto
from runhooks.events.format.proto import int_field, packed_ints_field, text_field
from runhooks.summary.message import SummaryMetadata, Value, serialized, tensor_entry
from runhooks.summary.values import (
    Kept,
    as_float,
    encode_kept_tensor,
    encode_strings,
    encode_tensor,
    finite_in,
    keep,
    scalar_value,
    tensor_value,
    warn_once,
)

# --- Charts of scalars

_LAYOUT_TAG = "custom_scalars__config__"
_LAYOUT = SummaryMetadata("custom_scalars").SerializeToString()


class Margin(NamedTuple):
    """The tags of a line, and of the lower and upper edge of a band around it."""

    value: str
    lower: str
    upper: str


Chart: TypeAlias = Sequence[str] | Margin


def custom_scalars_value(layout: Mapping[str, Mapping[str, Chart]] | Message) -> Value:
    """Return ``layout`` for TensorBoard's page of custom scalars.

    Args:
        layout: Charts by title by category: a list of tags, which are regular expressions, or a
            ``Margin``. Or TensorBoard's ``layout_pb2.Layout``. The last layout of a run counts.

    Raises:
        TypeError: ``layout`` is something else, or a chart is not made of tags.
    """
    if isinstance(layout, Mapping):
        encoded = b"".join(
            proto.bytes_field(2, text_field(1, category) + _charts(category, charts))
            for category, charts in layout.items()
        )
    else:
        encoded = serialized(layout, "layout must be a dict of charts by title by category")
    return Value(_LAYOUT_TAG, (encode_strings((), [encoded]), _LAYOUT), encode_kept_tensor)


def _charts(category: str, charts: Mapping[str, Chart]) -> bytes:
    if not isinstance(charts, Mapping):
        raise TypeError(f"category {category!r} must be a dict of charts by title, got {charts!r}")
    return b"".join(
        proto.bytes_field(2, text_field(1, title) + _chart(title, chart))
        for title, chart in charts.items()
    )


def _chart(title: str, chart: Chart) -> bytes:
    if isinstance(chart, str) or not all(isinstance(tag, str) for tag in chart):
        raise TypeError(
            f"chart {title!r} must be a list of tags or Margin(value, lower, upper), got {chart!r}"
        )
    if isinstance(chart, Margin):
        series = b"".join(text_field(number, tag) for number, tag in enumerate(chart, 1))
        return proto.bytes_field(3, proto.bytes_field(1, series))
    return proto.bytes_field(2, b"".join(proto.bytes_field(1, tag.encode()) for tag in chart))


# --- Hyperparameters

_EXPERIMENT, _START, _END = 2, 3, 4
_TAGS = {_EXPERIMENT: "experiment", _START: "session_start_info", _END: "session_end_info"}
_SUCCESS = 1
_NOTHING = np.empty(0, np.float32)  # all is in the metadata

_Plain = bool | float | str
_DATA_TYPES = {str: 1, bool: 2, float: 3}


def hparams_values(
    hparams: Mapping[str, Any],
    metrics: Mapping[str, Any],
    domains: Mapping[str, Sequence[Any]] | None = None,
) -> list[Value]:
    """Return the hyperparameters of a run.

    Args:
        hparams: bools, numbers, strs and functions (their names) by name; of anything else, its
            ``str``.
        metrics: Numbers by tag; with them, the run counts as finished.
        domains: Lists of all values of hyperparameters, by name. With them, TensorBoard shows these
            hyperparameters and metrics, and no others of any run.

    Raises:
        TypeError: One is not a dict with names that are str, a metric is not a number, or a domain
            is not a list.
        ValueError: A metric is not of size 1, or a domain is of no hyperparameter.
    """
    _check_names("hparams", hparams)
    _check_names("metrics", metrics)
    plain = {name: _plain(value) for name, value in hparams.items()}
    now = clock.wall()
    values = [_experiment(plain, metrics, domains)] if domains else []
    start = [
        proto.bytes_field(1, text_field(1, name) + proto.bytes_field(2, _encoded(value)))
        for name, value in plain.items()
    ]
    values.append(_record(_START, b"".join((*start, proto.double_field(5, now)))))
    if metrics:
        values += [scalar_value(tag, number) for tag, number in metrics.items()]
        values.append(_record(_END, int_field(1, _SUCCESS) + proto.double_field(2, now)))
    return values


def _check_names(argument: str, values: Any) -> None:
    if not isinstance(values, Mapping):
        raise TypeError(
            f"{argument} must be a dict of values by name, got {values!r}: "
            "vars(...) makes one of a Namespace"
        )
    for name in values:
        if not isinstance(name, str):
            raise TypeError(f"the names of {argument} must be str, got {name!r}")


def _plain(value: Any) -> _Plain:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return float(value)
    array = to_numpy(value) if is_array(value) else np.asarray(None)
    if array.size == 1 and array.dtype.kind in "biuf":
        return _plain(array.item())
    name = getattr(value, "__name__", None) if callable(value) else None
    return name if isinstance(name, str) else str(value)


def _encoded(value: _Plain) -> bytes:
    if isinstance(value, bool):
        return proto.varint_field(4, value)
    if isinstance(value, float):
        return proto.double_field(2, value)
    return proto.bytes_field(3, value.encode())


def _experiment(
    hparams: Mapping[str, _Plain], metrics: Mapping[str, Any], domains: Mapping[str, Sequence[Any]]
) -> Value:
    _check_names("the domains", domains)
    for name, domain in domains.items():
        if name not in hparams:
            known = ", ".join(map(repr, hparams))
            raise ValueError(f"there is a domain of {name!r}, which is no hyperparameter: {known}")
        if not isinstance(domain, list | tuple):
            raise TypeError(f"the domain of {name!r} must be a list of its values, got {domain!r}")
    parts = []
    for name, value in hparams.items():
        listed = [proto.bytes_field(1, _encoded(_plain(it))) for it in domains.get(name, ())]
        domain_field = proto.bytes_field(5, b"".join(listed)) if listed else b""
        info = text_field(1, name) + int_field(4, _DATA_TYPES[type(value)]) + domain_field
        parts.append(proto.bytes_field(4, info))
    parts += [proto.bytes_field(5, proto.bytes_field(1, text_field(2, tag))) for tag in metrics]
    return _record(_EXPERIMENT, b"".join(parts))


def _record(kind: int, content: bytes) -> Value:
    metadata = SummaryMetadata("hparams", proto.bytes_field(kind, content))
    return tensor_value(f"_hparams_/{_TAGS[kind]}", _NOTHING, metadata)


# --- Meshes

_MOST_COLOR = 255


class _Part(IntEnum):
    VERTEX = 1
    FACE = 2
    COLOR = 3


_DTYPES = {_Part.VERTEX: "float32", _Part.FACE: "int32", _Part.COLOR: "uint8"}


def mesh_values(
    tag: str,
    vertices: Any,
    colors: Any = None,
    faces: Any = None,
    config: Mapping[str, Any] | None = None,
) -> list[Value]:
    """Return the parts of a mesh, or of a batch of them; the first axis may be left out.

    Args:
        tag: The parts are tagged ``tag_VERTEX``, ``tag_COLOR`` and ``tag_FACE``.
        vertices: float ``[N, vertices, 3]``. One that is not finite is put on the first finite one
            of its mesh, with one warning per tag.
        colors: ``[N, vertices, 3]``, RGB of each vertex, 0 to 255: integers, or floats, which
            TensorBoard rounds down; one warning per tag if all are at most 1.0, which is black.
        faces: ``[N, faces, 3]``, the vertices of each triangle.
        config: Classes of three.js and their options, such as
            ``{"material": {"cls": "PointsMaterial", "size": 0.1}}``.

    Raises:
        TypeError: An array is not made of real numbers, or JSON cannot hold ``config``.
        ValueError: An array has another shape; or, when the summary is written, a color or a
            vertex of a face is out of range.
    """
    given = {_Part.VERTEX: vertices, _Part.FACE: faces, _Part.COLOR: colors}
    parts = {
        part: keep(f"mesh summary '{tag}_{part.name}'", array, _check_shape)
        for part, array in given.items()
        if array is not None or part is _Part.VERTEX
    }
    points = parts[_Part.VERTEX]
    of = host_form(points.values)
    for part, kept in parts.items():
        form = host_form(kept.values)
        if form is not None and of is not None:
            _check_fit(kept.what, part, form[0], of[0])
    mesh = _Mesh(tag, sum(1 << part for part in parts), _settings(config), points)
    return [
        Value(f"{tag}_{part.name}", kept, partial(_encode_part, mesh, part))
        for part, kept in parts.items()
    ]


class _Mesh(NamedTuple):
    tag: str
    components: int
    settings: str
    vertices: Kept


def _settings(config: Any) -> str:
    try:
        return json.dumps({**(config or {})}, sort_keys=True)
    except TypeError:
        raise TypeError(f"config must be a dict of what JSON has, got {config!r}") from None


def _check_shape(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) not in (2, 3) or shape[-1] != 3:
        raise ValueError(
            f"{what} must have the shape [N, count, 3] or [count, 3], got {list(shape)}"
        )


def _check_fit(what: str, part: _Part, shape: tuple[int, ...], vertices: tuple[int, ...]) -> None:
    batch, of = (1, *shape)[-3:], (1, *vertices)[-3:]
    if batch != of if part is _Part.COLOR else batch[0] != of[0]:
        raise ValueError(
            f"{what} must be for vertices of shape {list(vertices)}, got the shape {list(shape)}"
        )


def _encode_part(mesh: _Mesh, part: _Part, tag: str, data: Kept) -> bytes:
    array = _batch(data.read())
    if part is not _Part.VERTEX:
        vertices = _batch(mesh.vertices.read())
        _check_fit(data.what, part, array.shape, vertices.shape)
        most = _MOST_COLOR if part is _Part.COLOR else vertices.shape[1] - 1
        if array.size and not (array.min() >= 0 and array.max() <= most):
            raise ValueError(
                f"{data.what} must be from 0 to {most}, got {array.min()} to {array.max()}"
            )
    is_float_color = part is _Part.COLOR and array.dtype.kind not in "iub"
    if is_float_color and array.size and 0 < array.max() <= 1:
        text = "colors of at most %g, which TensorBoard shows as black: give 0 to 255"
        warn_once("mesh", mesh.tag, text, array.max())
    array = array.astype("float32" if is_float_color else _DTYPES[part])
    if part is _Part.VERTEX:
        _put_back(mesh.tag, array)
    content = (
        text_field(2, mesh.tag),
        int_field(3, part),
        text_field(5, mesh.settings),
        packed_ints_field(6, array.shape),
        int_field(7, mesh.components),
    )
    metadata = SummaryMetadata("mesh", b"".join(content))
    return tensor_entry(tag, encode_tensor(tag, array), metadata)


def _batch(array: NDArray[Any]) -> NDArray[Any]:
    return array[None] if array.ndim == 2 else array


def _put_back(tag: str, vertices: NDArray[Any]) -> None:
    # Viewers fail on one NaN.
    finite = finite_in("mesh", tag, vertices, "put on another vertex")
    if not finite.all():
        for cloud, numbers in zip(vertices, finite, strict=True):
            good = numbers.all(axis=1)
            cloud[~good] = cloud[good.argmax()] if good.any() else 0


# --- Precision and recall

_ROUNDING = 1e-3
_LEAST_COUNT = 1e-7  # as in TensorBoard


def pr_curve_value(
    tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None
) -> Value:
    """Return the precision-recall curve of ``predictions``.

    A prediction is positive at threshold i if it is at least ``i / (num_thresholds - 1)``, and
    always if there is one threshold.

    Args:
        tag: The tag.
        labels: bools, or 0 and 1, of any shape.
        predictions: 0.0 to 1.0, of the same shape; what is not finite is left out, with one warning
            per tag.
        num_thresholds: How many thresholds, evenly from 0 to 1.
        weights: Not negative, of the same shape, or one number; None: 1.

    Raises:
        TypeError: One is not made of real numbers.
        ValueError: The shapes differ, or ``num_thresholds`` is below 1; or, when the summary is
            written, a number is out of its range.
    """
    arguments.given(num_thresholds=num_thresholds)
    arguments.whole(num_thresholds=num_thresholds)
    weights = 1.0 if weights is None else weights
    given = {"labels": labels, "predictions": predictions, "weights": weights}
    kept = [keep(f"{name} of {_curve_name(tag)}", value) for name, value in given.items()]
    forms = [host_form(it.values) for it in kept]
    if forms[-1] is not None and not forms[-1][0]:
        del forms[-1]  # one weight for all
    _check_shapes(tag, [form[0] for form in forms if form is not None])
    return Value(tag, (*kept, num_thresholds), _encode_curve)


def _curve_name(tag: str) -> str:
    return f"pr_curve summary {tag!r}"


def _check_shapes(tag: str, shapes: Sequence[tuple[int, ...]]) -> None:
    if len(set(shapes)) > 1:
        raise ValueError(
            f"labels, predictions and weights of {_curve_name(tag)} must have one shape, "
            f"got {', '.join(str(list(shape)) for shape in shapes)}"
        )


def _encode_curve(tag: str, data: tuple[Kept, Kept, Kept, int]) -> bytes:
    labels, predictions, weights, num_thresholds = data
    positive = labels.read().astype(np.float64)
    likely = as_float(predictions.read())
    counted = weights.read()
    if not counted.ndim:
        counted = np.broadcast_to(counted, likely.shape)
    _check_shapes(tag, [positive.shape, likely.shape, counted.shape])
    finite = finite_in("pr_curve", tag, likely, "left out")
    shown = likely[finite]
    for kept, right, rule, values in (
        (labels, (positive == 0) | (positive == 1), "0 or 1", positive),
        (predictions, abs(shown - 0.5) <= 0.5 + _ROUNDING, "from 0.0 to 1.0", shown),
        (weights, np.isfinite(counted) & (counted >= 0), "finite and not negative", counted),
    ):
        if not np.all(right):
            raise ValueError(f"{kept.what} must be {rule}, got {values[~right].flat[0]}")
    curve = _curve(positive[finite], shown, counted[finite], num_thresholds)
    metadata = SummaryMetadata("pr_curves", int_field(2, num_thresholds))
    return tensor_entry(tag, encode_tensor(tag, curve), metadata)


def _curve(
    positive: NDArray[np.float64],
    likely: NDArray[Any],
    counted: NDArray[Any],
    num_thresholds: int,
) -> NDArray[np.float32]:
    """Return ``[6, num_thresholds]``: four counts, the precision and the recall."""
    buckets = np.floor(np.clip(likely, 0, 1) * (num_thresholds - 1)).astype(np.int32)

    def counts_from(weights: NDArray[Any]) -> NDArray[np.float64]:
        return np.bincount(buckets, weights, num_thresholds)[::-1].cumsum()[::-1]

    true_positives = counts_from(positive * counted)
    false_positives = counts_from((1 - positive) * counted)
    true_negatives = false_positives[0] - false_positives
    false_negatives = true_positives[0] - true_positives
    precision = true_positives / np.maximum(_LEAST_COUNT, true_positives + false_positives)
    recall = true_positives / np.maximum(_LEAST_COUNT, true_positives + false_negatives)
    rows = true_positives, false_positives, true_negatives, false_negatives, precision, recall
    return np.stack(rows).astype(np.float32)
