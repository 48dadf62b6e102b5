"""The fields of one event, the metadata of its values, and the tags of a run.

Field numbers are those of TensorFlow's ``event.proto``, ``summary.proto`` and ``tensor.proto``. Of
fields that exclude each other the last counts, as in Protocol Buffers.

The letters of a tag are compared as words of eight bytes, and found by their hash.
"""

from __future__ import annotations

import fnmatch
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runhooks.events.format.proto import (
    FIXED32,
    FIXED64,
    LENGTH_DELIMITED,
    VARINT,
    LocatedField,
    locate_fields,
    signed,
)

GRAPH_DEF, SUMMARY, SESSION_LOG_FIELD, TAGGED_RUN_METADATA, META_GRAPH_DEF = 4, 5, 7, 8, 9
SIMPLE_VALUE, OLD_HISTOGRAM, IMAGE, HISTOGRAM, AUDIO, TENSOR = 2, 3, 4, 5, 6, 8

_WALL_TIME, _STEP = 1, 2
_ONE_OF_EVENT = frozenset(range(3, 10))
_VALUE = 1
_TAG, _METADATA = 1, 9
_ONE_OF_VALUE = frozenset({SIMPLE_VALUE, OLD_HISTOGRAM, IMAGE, HISTOGRAM, AUDIO, TENSOR})
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")


class ParsedValue(NamedTuple):
    """One value of a summary, at ``message[begin:end]``, and its fields, None if absent.

    ``content.number`` is one of the constants above.
    """

    begin: int
    end: int
    tag: LocatedField | None
    metadata: LocatedField | None
    content: LocatedField | None


class ParsedEvent(NamedTuple):
    """The fields of one event; ``wall_time`` and ``step`` are None if absent.

    ``number``: the field that it holds besides, such as ``SUMMARY``; ``contents``: its places.
    ``values``: the values of its summary.
    """

    wall_time: LocatedField | None
    step: LocatedField | None
    number: int
    contents: list[LocatedField]
    values: list[ParsedValue]


def parse_event(message: bytes) -> ParsedEvent:
    """Return the fields of ``message``, an Event. Raises ValueError if it is malformed."""
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
    """Return the values of the Summary at ``message[begin:end]``. Raises ValueError."""
    return [
        parse_value(message, field.begin, field.end)
        for field in locate_fields(message, begin, end)
        if field.number == _VALUE and field.wire_type == LENGTH_DELIMITED
    ]


def parse_value(message: bytes, begin: int, end: int) -> ParsedValue:
    """Return the fields of the value at ``message[begin:end]``. Raises ValueError."""
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


def wall_time_of(message: bytes, event: ParsedEvent) -> float:
    """Return the time of ``event``, in seconds since the epoch."""
    if event.wall_time is None:
        return 0.0
    seconds: float = _DOUBLE.unpack_from(message, event.wall_time.begin)[0]
    return seconds


def step_of(event: ParsedEvent) -> int:
    """Return the step of ``event``."""
    return signed(event.step.value) if event.step else 0


def float_at(message: bytes, field: LocatedField) -> float:
    """Return the float at ``field``."""
    value: float = _FLOAT.unpack_from(message, field.begin)[0]
    return value


def text_at(message: bytes, field: LocatedField | None) -> str:
    """Return the string at ``field``, with bytes that are not UTF-8 escaped; "" if None."""
    if field is None:
        return ""
    return message[field.begin : field.end].decode(errors="backslashreplace")


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


class Wanted:
    """The points to decode: those of ``tags``, names or shell patterns, and of ``kinds``.

    None stands for all. Raises ValueError if a kind is unknown.
    """

    def __init__(self, tags: str | Sequence[str] | None, kinds: str | Sequence[str] | None) -> None:
        patterns = [tags] if isinstance(tags, str) else tags
        self._pattern = None if patterns is None else _any_of(patterns)
        self._names = frozenset(patterns or ())
        self._kinds = {kinds} if isinstance(kinds, str) else None if kinds is None else set(kinds)
        unknown = (self._kinds or set()) - {*KINDS, SESSION_LOG}
        if unknown:
            raise ValueError(
                f"kinds must be some of {', '.join(KINDS)}, got {', '.join(sorted(unknown))}"
            )

    def tag(self, tag: str) -> bool:
        """Return whether ``tag`` is wanted."""
        if self._pattern is None or tag in self._names:
            return True
        return self._pattern.match(tag) is not None

    def kind(self, kind: str) -> bool:
        """Return whether ``kind`` is wanted."""
        return self._kinds is None or kind in self._kinds

    def named_kind(self, kind: str) -> bool:
        """Return whether ``kind`` is wanted and was named."""
        return self._kinds is not None and kind in self._kinds


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    # Without patterns: one that matches nothing.
    return re.compile("|".join(map(fnmatch.translate, patterns)) or r"(?!)")


class TagNumbers:
    """Numbers the wanted tags of all runs that are read together; ``names`` has them in order."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.names: list[str] = []
        self._ids: dict[str, int] = {}

    def id(self, tag: str) -> int:
        """Return the number of ``tag``, from 0 on; -1 if it is not wanted."""
        found = self._ids.get(tag)
        if found is None:
            found = len(self.names) if self.wanted.tag(tag) else -1
            self._ids[tag] = found
            if found >= 0:
                self.names.append(tag)
        return found


class TagRegistry:
    """Keeps the metadata of the tags of one run."""

    def __init__(self, numbers: TagNumbers) -> None:
        self.numbers = numbers
        self._metadata: dict[str, Metadata] = {}

    def metadata(self, tag: str) -> Metadata:
        """Return the first metadata of ``tag``."""
        return self._metadata.get(tag, Metadata())

    def add_metadata(self, tags: Iterable[str], metadata: Metadata) -> None:
        """Keep ``metadata`` for those of ``tags`` that have none."""
        for tag in tags:
            self._metadata.setdefault(tag, metadata)

    def metadata_of(self, message: bytes, value: ParsedValue, tag: str) -> Metadata:
        """Return the metadata of ``value``, which is in ``message``, or else that of its tag.

        Some writers send it only once for each tag. Raises ValueError if it is malformed.
        """
        if value.metadata is None:
            return self.metadata(tag)
        metadata = parse_metadata(message, value.metadata.begin, value.metadata.end)
        self._metadata.setdefault(tag, metadata)
        return metadata


_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(29)


class TagLookup:
    """The tags at bytes ``[begin:end]`` of rows.

    Attributes:
        ids: The numbers that were added with the tags, by slot, int32.
        crcs: The CRCs that were added with the tags, by slot, uint32.
    """

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end = begin, end
        words = range(begin // 8, -(-end // 8)) if end > begin else range(0)
        mask = np.zeros(8 * words.stop, np.uint8)
        mask[begin:end] = 0xFF
        self._masks = [(word, mask.view(np.uint64)[word]) for word in words]
        self._hashes = np.zeros(0, np.uint64)  # sorted
        self._words = [np.zeros(0, np.uint64) for _ in words]
        self.ids = np.zeros(0, np.int32)
        self.crcs = np.zeros(0, np.uint32)

    def add(
        self, rows: NDArray[np.uint8], ids: NDArray[np.int32], crcs: NDArray[np.uint32]
    ) -> None:
        """Add the tags of ``rows``, which are new and distinct; all slots change."""
        words = self._words_of(rows)
        hashes = np.concatenate([self._hashes, _hashes(words, len(rows))])
        # Of two tags with one hash the second is not found: such records are decoded one by one.
        self._hashes, order = np.unique(hashes, return_index=True)
        self._words = [
            np.concatenate([known, new])[order]
            for known, new in zip(self._words, words, strict=True)
        ]
        self.ids = np.concatenate([self.ids, ids])[order]
        self.crcs = np.concatenate([self.crcs, crcs])[order]

    def slots(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the slot of each of ``rows``, uint8 ``[n, width]``, -1 if none: int64 ``[n]``."""
        if not len(self._hashes):
            return np.full(len(rows), -1, np.int64)
        words = self._words_of(rows)
        slots = np.searchsorted(self._hashes, _hashes(words, len(rows)))
        wrong = np.zeros(len(rows), np.bool_)
        for word, known in zip(words, self._words, strict=True):
            wrong |= known.take(slots, mode="clip") != word
        slots[wrong] = -1
        return slots

    def tags(self, rows: NDArray[np.uint8]) -> list[bytes]:
        """Return the tags of ``rows``."""
        return [row[self._begin : self._end].tobytes() for row in rows]

    def distinct(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the indices of some of ``rows``, all with distinct tags; of most tags, one."""
        hashes = _hashes(self._words_of(rows), len(rows))
        return np.sort(np.unique(hashes, return_index=True)[1])

    def _words_of(self, rows: NDArray[np.uint8]) -> list[NDArray[np.uint64]]:
        columns = rows.view(np.uint64)
        return [columns[:, at] & mask for at, mask in self._masks]


def _hashes(words: Iterable[NDArray[np.uint64]], count: int) -> NDArray[np.uint64]:
    hashes = np.zeros(count, np.uint64)
    for word in words:
        hashes ^= word
        hashes *= _FACTOR
        hashes ^= hashes >> _FOLD
    return hashes * _FACTOR
