"""The events of a file, one by one."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from runhooks.events import Event, read_records


def events_in(path: str | Path) -> list[Event]:
    records = read_records(BytesIO(Path(path).read_bytes()), str(path))
    return [Event.FromString(payload) for payload in records]
