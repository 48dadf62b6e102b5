"""Text: a string, or an array of strings, which TensorBoard shows as Markdown."""

from __future__ import annotations

from typing import Any

import numpy as np

from runhooks.events import wire
from runhooks.summary.message import Value, entry
from runhooks.summary.real_array import as_now

_TENSOR, _METADATA = 8, 9
_DT_STRING = 7
_DATA_CLASS_TENSOR = 2
_PLUGIN_TEXT = b"".join(
    (
        wire.bytes_field(1, wire.bytes_field(1, b"text")),
        wire.varint_field(4, _DATA_CLASS_TENSOR),
    )
)


def text_value(tag: str, text: Any) -> Value:
    """Return ``text``, a str or a list or array of them, to be written as text.

    TensorBoard shows an array of one or two dimensions as a table.

    It is read when the summary is written, which raises TypeError if an element is no str.
    """
    return Value(tag, list(text) if isinstance(text, list) else as_now(text), _encode)


def _encode(tag: str, text: Any) -> bytes:
    array = np.asarray(text, object)
    strings = (wire.bytes_field(8, _utf8(tag, element)) for element in array.flat)
    sizes = (wire.bytes_field(2, wire.varint_field(1, size)) for size in array.shape)
    tensor = (
        wire.varint_field(1, _DT_STRING),
        wire.bytes_field(2, b"".join(sizes)),
        *strings,
    )
    fields = (
        wire.bytes_field(_TENSOR, b"".join(tensor)),
        wire.bytes_field(_METADATA, _PLUGIN_TEXT),
    )
    return entry(tag, b"".join(fields))


def _utf8(tag: str, element: object) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode()
    raise TypeError(f"text summary {tag!r} must be made of str, got {element!r}")
