"""The fields of one event, the metadata of its values, and the tags that are wanted.

Of fields that exclude each other the last counts. What is malformed raises ValueError. Format:
TensorFlow's ``event.proto`` and ``summary.proto``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from runhooks.events.format.proto import (
    FIXED32,
    FIXED64,
    LENGTH_DELIMITED,
    VARINT,
    LocatedField,
    as_bytes,
    as_float,
    as_int,
    fields,
    locate_fields,
)

GRAPH_DEF, SUMMARY, SESSION_LOG_FIELD = 4, 5, 7
SIMPLE_VALUE, OLD_HISTOGRAM, IMAGE, HISTOGRAM, AUDIO, TENSOR = 2, 3, 4, 5, 6, 8

_WALL_TIME, _STEP = 1, 2
_ONE_OF_EVENT = frozenset(range(3, 10))
_VALUE = 1
_TAG, _METADATA = 1, 9
_ONE_OF_VALUE = frozenset({SIMPLE_VALUE, OLD_HISTOGRAM, IMAGE, HISTOGRAM, AUDIO, TENSOR})


class ParsedValue(NamedTuple):
    """One value of a summary, at ``message[begin:end]``, and its fields, None if absent."""

    begin: int
    end: int
    tag: LocatedField | None
    metadata: LocatedField | None
    content: LocatedField | None


class ParsedEvent(NamedTuple):
    """The fields of one event; ``number`` is that of the one besides time and step."""

    wall_time: LocatedField | None
    step: LocatedField | None
    number: int
    contents: list[LocatedField]
    values: list[ParsedValue]


def parse_event(message: bytes) -> ParsedEvent:
    wall_time = step = None
    number, contents = 0, list[LocatedField]()
    for field in locate_fields(message, 0, len(message)):
        if field.number == _WALL_TIME and field.wire_type == FIXED64:
            wall_time = field
        elif field.number == _STEP and field.wire_type == VARINT:
            step = field
        elif field.number in _ONE_OF_EVENT and field.wire_type == LENGTH_DELIMITED:
            if field.number != number:
                number, contents = field.number, []
            contents.append(field)
    values = []
    if number == SUMMARY:
        values = [
            value for field in contents for value in parse_summary(message, field.begin, field.end)
        ]
    return ParsedEvent(wall_time, step, number, contents, values)


def parse_summary(message: bytes, begin: int, end: int) -> list[ParsedValue]:
    return [
        parse_value(message, field.begin, field.end)
        for field in locate_fields(message, begin, end)
        if field.number == _VALUE and field.wire_type == LENGTH_DELIMITED
    ]


def parse_value(message: bytes, begin: int, end: int) -> ParsedValue:
    tag = metadata = content = None
    for field in locate_fields(message, begin, end):
        if field.number == SIMPLE_VALUE:
            content = field if field.wire_type == FIXED32 else content
        elif field.wire_type != LENGTH_DELIMITED:
            continue
        elif field.number == _TAG:
            tag = field
        elif field.number == _METADATA:
            metadata = field
        elif field.number in _ONE_OF_VALUE:
            content = field
    return ParsedValue(begin, end, tag, metadata, content)


def text_of(content: bytes) -> str:
    return content.decode(errors="backslashreplace")


SCALAR = "scalar"
HPARAMS = "hparams"
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
    "hparams": HPARAMS,
    "custom_scalars": "custom_scalars",
}
_TENSOR = "tensor"

KINDS = (*dict.fromkeys([*_OF_CONTENT.values(), *_OF_PLUGIN.values()]), _TENSOR)


class Metadata(NamedTuple):
    """The metadata of a tag; ``content``: bytes for its plugin."""

    plugin: str = ""
    content: bytes = b""
    display_name: str = ""
    description: str = ""


def parse_metadata(message: bytes) -> Metadata:
    found = dict(fields(message))
    plugin = dict(fields(as_bytes(found.get(1, b""))))
    texts = (as_bytes(it) for it in (plugin.get(1, b""), found.get(2, b""), found.get(3, b"")))
    name, display_name, description = map(text_of, texts)
    return Metadata(name, as_bytes(plugin.get(2, b"")), display_name, description)


def _kind_of(value: ParsedValue, metadata: Metadata) -> str | None:
    number = value.content.number if value.content else None
    if number in _OF_CONTENT:
        return _OF_CONTENT[number]
    if number == TENSOR:
        return _OF_PLUGIN.get(metadata.plugin, _TENSOR)
    return HPARAMS if metadata.plugin == "hparams" else None  # they are in the metadata


def parse_hparams(content: bytes) -> dict[str, Any]:
    """Format: ``HParamsPluginData`` of ``tensorboard/plugins/hparams/plugin_data.proto``."""
    starts = [it.value for it in fields(content) if it.number == 3]
    entries = [it.value for start in starts for it in fields(as_bytes(start)) if it.number == 1]
    found = {}
    for entry in entries:
        parts = dict(fields(as_bytes(entry)))
        value = None
        for number, sent in fields(as_bytes(parts.get(2, b""))):
            value = _OF_HPARAM[number](sent) if number in _OF_HPARAM else None
        found[text_of(as_bytes(parts.get(1, b"")))] = value
    return found


_OF_HPARAM: dict[int, Callable[[int | bytes], float | str | bool]] = {
    2: as_float,
    3: lambda sent: text_of(as_bytes(sent)),
    4: lambda sent: bool(as_int(sent)),
}


class Wanted:
    """Which points to decode.

    ``tags``: names or shell patterns. ``kinds``: some of ``KINDS`` and ``SESSION_LOG``. None: all.
    ``names``: the wanted tags that were found, by number. Raises ValueError if a kind is unknown.
    """

    def __init__(
        self,
        tags: str | Sequence[str] | None = None,
        kinds: str | Sequence[str] | None = None,
    ) -> None:
        patterns = [tags] if isinstance(tags, str) else tags
        # Without patterns: one that matches nothing.
        any_of = "|".join(map(fnmatch.translate, patterns or ())) or r"(?!)"
        self._pattern = None if patterns is None else re.compile(any_of)
        self._exact = frozenset(patterns or ())
        self._kinds = {kinds} if isinstance(kinds, str) else None if kinds is None else set(kinds)
        unknown = (self._kinds or set()) - {*KINDS, SESSION_LOG}
        if unknown:
            raise ValueError(
                f"kinds must be some of {', '.join(KINDS)}, got {', '.join(sorted(unknown))}"
            )
        self.names: list[str] = []
        self._ids: dict[str, int] = {}

    def id(self, kind: str, tag: str) -> int:
        """Return the number of ``tag``, or -1 if its points of ``kind`` are not wanted."""
        if self._kinds is not None and kind not in self._kinds:
            return -1
        found = self._ids.get(tag)
        if found is None:
            pattern = self._pattern
            is_wanted = pattern is None or tag in self._exact or pattern.match(tag) is not None
            found = self._ids[tag] = len(self.names) if is_wanted else -1
            if is_wanted:
                self.names.append(tag)
        return found

    def named_kind(self, kind: str) -> bool:
        return self._kinds is not None and kind in self._kinds


class TagMetadata:
    """The first metadata of each tag of one run: some writers send it only once."""

    def __init__(self) -> None:
        self._by_tag: dict[str, Metadata] = {}

    def of(self, tag: str) -> Metadata:
        return self._by_tag.get(tag, Metadata())

    def add(self, tags: Iterable[str], metadata: Metadata) -> None:
        for tag in tags:
            self._by_tag.setdefault(tag, metadata)

    def identify(self, message: bytes, value: ParsedValue) -> tuple[str, Metadata, str | None]:
        """Return the tag, the metadata of the value or else of the tag, and the kind or None."""
        tag = "" if value.tag is None else text_of(message[value.tag.begin : value.tag.end])
        metadata = self.of(tag)
        if value.metadata is not None:
            metadata = parse_metadata(message[value.metadata.begin : value.metadata.end])
            self.add([tag], metadata)
        return tag, metadata, _kind_of(value, metadata)
