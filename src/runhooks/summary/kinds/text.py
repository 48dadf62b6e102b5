"""Text: a string, or an array of strings, which TensorBoard shows as Markdown."""

from __future__ import annotations

from typing import Any

import numpy as np

from runhooks.summary.kinds.real_array import as_now
from runhooks.summary.kinds.tensor import encode_texts
from runhooks.summary.message import Value
from runhooks.summary.metadata import DataClass, SummaryMetadata, tensor_entry

_METADATA = SummaryMetadata("text", data_class=DataClass.DATA_CLASS_TENSOR)


def text_value(tag: str, text: Any) -> Value:
    """Return ``text``, a str or a list or array of them, to be written as text.

    TensorBoard shows an array of one or two dimensions as a table.

    It is read when the summary is written, which raises TypeError if an element is no str.
    """
    return Value(tag, as_now(text), _encode)


def _encode(tag: str, text: Any) -> bytes:
    rule = f"text summary {tag!r} must be made of str"
    return tensor_entry(tag, encode_texts(np.asarray(text, object), rule), _METADATA)
