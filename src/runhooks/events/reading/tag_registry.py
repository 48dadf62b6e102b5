"""``TagNumbers``: the wanted tags of several runs; ``TagRegistry``: the metadata of one run."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence

from runhooks.events.reading.metadata import KINDS, SESSION_LOG, Metadata, parse_metadata
from runhooks.events.reading.parsed_event import ParsedValue


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
