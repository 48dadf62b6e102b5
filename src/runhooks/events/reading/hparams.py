"""Hyperparameters, as TensorBoard's hparams plugin has them in the metadata of a summary.

Format: ``tensorboard/plugins/hparams/plugin_data.proto`` and ``google/protobuf/struct.proto``.
"""

from __future__ import annotations

import struct
from typing import Any

from runhooks.events.reading.parsed_event import text_at
from runhooks.events.spans import FIXED64, LENGTH_DELIMITED, VARINT, Span, spans

_SESSION_START_INFO = 3
_HPARAMS = 1
_KEY, _ENTRY_VALUE = 1, 2
_NUMBER, _STRING, _BOOL = 2, 3, 4


def parse_hparams(content: bytes) -> dict[str, Any]:
    """Return the hyperparameters in an HParamsPluginData message, if it says any.

    Values are float, str or bool, or None for anything else. Raises ValueError if it is none.
    """
    found = {}
    for start in _messages(content, Span(0, LENGTH_DELIMITED, 0, len(content), 0)):
        if start.number == _SESSION_START_INFO:
            for entry in _messages(content, start):
                if entry.number == _HPARAMS:
                    parts = {part.number: part for part in _messages(content, entry)}
                    value = parts.get(_ENTRY_VALUE)
                    name = text_at(content, parts.get(_KEY))
                    found[name] = _value(content, value) if value else None
    return found


def _messages(content: bytes, span: Span) -> list[Span]:
    return [s for s in spans(content, span.begin, span.end) if s.wire_type == LENGTH_DELIMITED]


def _value(content: bytes, message: Span) -> Any:
    value: Any = None
    for span in spans(content, message.begin, message.end):
        kind = span.number, span.wire_type
        if kind == (_NUMBER, FIXED64):
            (value,) = struct.unpack("<d", content[span.begin : span.end])
        elif kind == (_STRING, LENGTH_DELIMITED):
            value = text_at(content, span)
        elif kind == (_BOOL, VARINT):
            value = bool(span.value)
        else:
            value = None
    return value
