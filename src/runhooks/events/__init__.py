"""Event files: their format, writing them in the background, and reading them.

Only scalars are encoded here, column by column; ``runhooks.summary`` encodes all other kinds.
"""

from typing import TYPE_CHECKING

from runhooks.events.format.event import Event, Message, SessionLog, SessionStatus
from runhooks.events.format.record import frame, read_records
from runhooks.events.writing.background import flush_all
from runhooks.events.writing.write_queue import OnFull
from runhooks.lazy import lazily

# A program that only writes does not load the reader.
if TYPE_CHECKING:
    from runhooks.events.reading.check import FileReport, Fold, check
    from runhooks.events.reading.results import Damage, Point, Points, Scalars
    from runhooks.events.reading.runs import Run, Runs, Tag, read
    from runhooks.events.reading.stream import StreamPoint, stream
    from runhooks.events.reading.values import Audio, Histogram, Image, SummaryDecoder, TaggedValue
else:
    __getattr__, __dir__ = lazily(__name__, others=["runhooks.events.reading"])

__all__ = [
    "Audio",
    "Damage",
    "Event",
    "FileReport",
    "Fold",
    "Histogram",
    "Image",
    "Message",
    "OnFull",
    "Point",
    "Points",
    "Run",
    "Runs",
    "Scalars",
    "SessionLog",
    "SessionStatus",
    "StreamPoint",
    "SummaryDecoder",
    "Tag",
    "TaggedValue",
    "check",
    "flush_all",
    "frame",
    "read",
    "read_records",
    "stream",
]
