"""Which scalars TensorBoard shows in one chart.

Field numbers are those of its ``plugins/custom_scalar/layout.proto``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from runhooks.events import Message
from runhooks.events.format import proto
from runhooks.events.format.proto import text_field
from runhooks.summary.kinds.tensor import encode_strings
from runhooks.summary.message import SummaryMetadata, Value, tensor_entry

_TAG = "custom_scalars__config__"
_METADATA = SummaryMetadata("custom_scalars")


class Margin(NamedTuple):
    """The tags of three scalars: a line, and the lower and upper edge of a band around it."""

    value: str
    lower: str
    upper: str


#: The tags of the lines of a chart, or one line in a band.
Chart: TypeAlias = Sequence[str] | Margin


def custom_scalars_value(layout: Mapping[str, Mapping[str, Chart]] | Message) -> Value:
    """Return ``layout`` for TensorBoard's page of custom scalars.

    Args:
        layout: Charts by title by category, their tags being regular expressions; or a
            ``layout_pb2.Layout`` of TensorBoard.

    Raises:
        TypeError: ``layout`` is something else, or a chart is not made of tags.
    """
    if isinstance(layout, Mapping):
        encoded = b"".join(
            proto.bytes_field(2, text_field(1, category) + _charts(category, charts))
            for category, charts in layout.items()
        )
    elif hasattr(layout, "SerializeToString"):
        encoded = layout.SerializeToString()
    else:
        raise TypeError(f"layout must be a dict of charts by title by category, got {layout!r}")
    return Value(_TAG, encoded, _encode)


def _encode(tag: str, layout: bytes) -> bytes:
    return tensor_entry(tag, encode_strings((), [layout]), _METADATA)


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
