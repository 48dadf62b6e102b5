"""Kinds: what the points of a tag are."""

from __future__ import annotations

from typing import NamedTuple

from runhooks.events.reading.parsed_event import (
    AUDIO,
    HISTOGRAM,
    IMAGE,
    SIMPLE_VALUE,
    TENSOR,
    ParsedValue,
    text_at,
)
from runhooks.events.spans import LENGTH_DELIMITED, spans

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

#: All of them, but for what is no point: ``SESSION_LOG``.
KINDS = (*dict.fromkeys([*_OF_CONTENT.values(), *_OF_PLUGIN.values()]), _TENSOR)


class Metadata(NamedTuple):
    """What a writer said of a tag. ``content``: for the plugin."""

    plugin: str = ""
    content: bytes = b""
    display_name: str = ""
    description: str = ""


def parse_metadata(message: bytes, begin: int, end: int) -> Metadata:
    """Return the SummaryMetadata at ``message[begin:end]``. Raises ValueError if it is none."""
    found = {}
    for span in spans(message, begin, end):
        if span.wire_type == LENGTH_DELIMITED:
            found[span.number] = span
    plugin = {}
    if 1 in found:
        plugin = {s.number: s for s in spans(message, found[1].begin, found[1].end)}
    content = plugin.get(2)
    return Metadata(
        text_at(message, plugin.get(1)),
        message[content.begin : content.end] if content else b"",
        text_at(message, found.get(2)),
        text_at(message, found.get(3)),
    )


def kind_of(value: ParsedValue, metadata: Metadata) -> str | None:
    """Return the kind of ``value``, of a tag with that metadata; None if it says nothing."""
    number = value.content.number if value.content else None
    if number in _OF_CONTENT:
        return _OF_CONTENT[number]
    if number == TENSOR:
        return _OF_PLUGIN.get(metadata.plugin, _TENSOR)
    return "hparams" if metadata.plugin == "hparams" else None  # it is in the metadata
