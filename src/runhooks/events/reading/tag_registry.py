"""``TagRegistry``: the tags of a run, numbered, and which of them are wanted."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from runhooks.events.reading.kinds import KINDS, SESSION_LOG, Metadata, parse_metadata
from runhooks.events.reading.parsed_event import ParsedValue


class Wanted:
    """Which points are wanted: those of ``tags``, names or patterns of a shell, and of ``kinds``.

    None stands for all. Raises ValueError for a kind there is not.
    """

    def __init__(self, tags: str | Sequence[str] | None, kinds: str | Sequence[str] | None) -> None:
        patterns = [tags] if isinstance(tags, str) else tags
        self._pattern = None if patterns is None else _any_of(patterns)
        self._names = frozenset(patterns or ())
        self._kinds = {kinds} if isinstance(kinds, str) else None if kinds is None else set(kinds)
        unknown = (self._kinds or set()) - {*KINDS, SESSION_LOG}
        if unknown:
            raise ValueError(
                f"kinds must be among {', '.join(KINDS)}, got {', '.join(sorted(unknown))}"
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
    # Without patterns: what matches nothing.
    return re.compile("|".join(map(fnmatch.translate, patterns)) or r"(?!)")


class TagRegistry:
    """Numbers the wanted tags of a run, and keeps what their writers said of them."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.names: list[str] = []
        self._ids: dict[str, int] = {}
        self._metadata: dict[str, Metadata] = {}

    def id(self, tag: str) -> int:
        """Return the number of ``tag``, from 0 on; -1 if it is not wanted."""
        found = self._ids.get(tag)
        if found is None:
            found = len(self.names) if self.wanted.tag(tag) else -1
            self._ids[tag] = found
            if found >= 0:
                self.names.append(tag)
        return found

    def metadata(self, tag: str) -> Metadata:
        """Return what was said first of ``tag``."""
        return self._metadata.get(tag, Metadata())

    def metadata_of(self, message: bytes, value: ParsedValue, tag: str) -> Metadata:
        """Return what ``value``, which is in ``message``, says of its tag, or what was said first.

        Some writers say it only once. Raises ValueError if it makes no sense.
        """
        if value.metadata is None:
            return self.metadata(tag)
        said = parse_metadata(message, value.metadata.begin, value.metadata.end)
        self._metadata.setdefault(tag, said)
        return said
