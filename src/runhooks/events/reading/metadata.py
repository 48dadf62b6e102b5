"""The metadata of a value: the plugin it belongs to, hence its kind, and hyper-parameters."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from runhooks.events.format.fields import (
    FIXED64,
    LENGTH_DELIMITED,
    VARINT,
    LocatedField,
    locate_fields,
)
from runhooks.events.reading.parsed_event import (
    AUDIO,
    HISTOGRAM,
    IMAGE,
    SIMPLE_VALUE,
    TENSOR,
    ParsedValue,
    text_at,
)

SCALAR = "scalar"
SESSION_LOG = "session_log"

_OF_CONTENT = {SIMPLE_VALUE: SCALAR, HISTOGRAM: "histogram", IMAGE: "image", AUDIO: "audio"}
_OF_PLUGIN = {
    "scalars": SCALAR,
    "histograms": "histogram",
    "images": "image",
    "audio": "audio",
    "text": "text",
    "pr_curves": "pr_curve",
    "mesh": "mesh",
    "hparams": "hparams",
    "custom_scalars": "custom_scalars",
}
_TENSOR = "tensor"

#: All kinds of points, so all but ``SESSION_LOG``.
KINDS = (*dict.fromkeys([*_OF_CONTENT.values(), *_OF_PLUGIN.values()]), _TENSOR)


class Metadata(NamedTuple):
    """The metadata of a tag. ``content``: bytes for the plugin."""

    plugin: str = ""
    content: bytes = b""
    display_name: str = ""
    description: str = ""


def parse_metadata(message: bytes, begin: int, end: int) -> Metadata:
    """Return the SummaryMetadata at ``message[begin:end]``. Raises ValueError if malformed."""
    found = {}
    for field in locate_fields(message, begin, end):
        if field.wire_type == LENGTH_DELIMITED:
            found[field.number] = field
    plugin = {}
    if 1 in found:
        plugin = {s.number: s for s in locate_fields(message, found[1].begin, found[1].end)}
    content = plugin.get(2)
    return Metadata(
        text_at(message, plugin.get(1)),
        message[content.begin : content.end] if content else b"",
        text_at(message, found.get(2)),
        text_at(message, found.get(3)),
    )


def kind_of_tensor(metadata: Metadata) -> str:
    """Return the kind of a tensor whose tag has this metadata."""
    return _OF_PLUGIN.get(metadata.plugin, _TENSOR)


def kind_of(value: ParsedValue, metadata: Metadata) -> str | None:
    """Return the kind of ``value``, whose tag has this metadata; None if it is empty."""
    number = value.content.number if value.content else None
    if number in _OF_CONTENT:
        return _OF_CONTENT[number]
    if number == TENSOR:
        return kind_of_tensor(metadata)
    return "hparams" if metadata.plugin == "hparams" else None  # they are in the metadata


_SESSION_START_INFO = 3
_HPARAMS = 1
_KEY, _ENTRY_VALUE = 1, 2
_NUMBER, _STRING, _BOOL = 2, 3, 4


def parse_hparams(content: bytes) -> dict[str, Any]:
    """Return the hyper-parameters in an HParamsPluginData message, if there are any.

    Format: ``tensorboard/plugins/hparams/plugin_data.proto`` and ``google/protobuf/struct.proto``.
    Values are float, str or bool, or None for anything else. Raises ValueError if malformed.
    """
    found = {}
    for start in _messages(content, LocatedField(0, LENGTH_DELIMITED, 0, len(content), 0)):
        if start.number == _SESSION_START_INFO:
            for entry in _messages(content, start):
                if entry.number == _HPARAMS:
                    parts = {part.number: part for part in _messages(content, entry)}
                    value = parts.get(_ENTRY_VALUE)
                    name = text_at(content, parts.get(_KEY))
                    found[name] = _value(content, value) if value else None
    return found


def _messages(content: bytes, field: LocatedField) -> list[LocatedField]:
    return [
        s for s in locate_fields(content, field.begin, field.end) if s.wire_type == LENGTH_DELIMITED
    ]


def _value(content: bytes, message: LocatedField) -> Any:
    value: Any = None
    for field in locate_fields(content, message.begin, message.end):
        kind = field.number, field.wire_type
        if kind == (_NUMBER, FIXED64):
            (value,) = struct.unpack("<d", content[field.begin : field.end])
        elif kind == (_STRING, LENGTH_DELIMITED):
            value = text_at(content, field)
        elif kind == (_BOOL, VARINT):
            value = bool(field.value)
        else:
            value = None
    return value
