"""``SummaryMetadata``: which plugin of TensorBoard a value is for, and how it is described there.

Field numbers are those of TensorFlow's ``summary.proto``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from runhooks.events import Message, wire
from runhooks.events.fields import int_field, text_field
from runhooks.summary.message import entry

_TENSOR, _METADATA = 8, 9


class DataClass(IntEnum):
    """What kind of data the values of a tag are."""

    DATA_CLASS_UNKNOWN = 0
    DATA_CLASS_SCALAR = 1
    DATA_CLASS_TENSOR = 2
    DATA_CLASS_BLOB_SEQUENCE = 3


class SummaryMetadata(NamedTuple):
    """``plugin_name`` shows the value, ``content`` is for it alone.

    ``display_name`` stands in place of the tag; ``summary_description`` is Markdown.
    """

    plugin_name: str = ""
    content: bytes = b""
    display_name: str = ""
    summary_description: str = ""
    data_class: int = DataClass.DATA_CLASS_UNKNOWN

    def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers\' name)
        """Return the message in the wire format."""
        plugin = text_field(1, self.plugin_name) + text_field(2, self.content)
        return b"".join(
            (
                text_field(1, plugin),
                text_field(2, self.display_name),
                text_field(3, self.summary_description),
                int_field(4, self.data_class),
            )
        )


class SummaryDescription(NamedTuple):
    """``type_hint``: how a value may be read that is of no plugin; TensorBoard does not use it."""

    type_hint: str = ""

    def SerializeToString(self) -> bytes:  # noqa: N802 (Protocol Buffers\' name)
        """Return the message in the wire format."""
        return text_field(1, self.type_hint)


def describe(
    metadata: Message | None, display_name: str | None, summary_description: str | None
) -> bytes:
    """Return ``metadata``, of ours or of Protocol Buffers, with these in place of its own."""
    encoded = metadata.SerializeToString() if metadata is not None else b""
    # Of a field that comes twice, the later one counts.
    return encoded + text_field(2, display_name or "") + text_field(3, summary_description or "")


def tensor_entry(tag: str, tensor: bytes, metadata: Message | bytes) -> bytes:
    """Return one entry of a summary that holds ``tensor``, a ``TensorProto``."""
    encoded = metadata if isinstance(metadata, bytes) else metadata.SerializeToString()
    return entry(tag, wire.bytes_field(_TENSOR, tensor) + wire.bytes_field(_METADATA, encoded))
