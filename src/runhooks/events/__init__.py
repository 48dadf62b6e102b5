"""Event files: bytes in records, written in the background and read back.

Of what a summary means only scalars are known here: they are encoded, and decoded, by the column.
"""

from typing import TYPE_CHECKING

from runhooks.events.background import flush_all
from runhooks.events.event import Event, Message, SessionLog, SessionStatus
from runhooks.events.event_writer import EventWriter
from runhooks.events.queue_policy import OnFull
from runhooks.events.record import frame, read_records
from runhooks.lazy import lazily

if TYPE_CHECKING:
    from runhooks.events.reading.check import FileReport, Fold, Gap, check
    from runhooks.events.reading.damage import Damage
    from runhooks.events.reading.points import Point, Points
    from runhooks.events.reading.read import read
    from runhooks.events.reading.read_events import read_events
    from runhooks.events.reading.run import Run, Tag
    from runhooks.events.reading.runs import Runs
    from runhooks.events.reading.scalars import Scalars
    from runhooks.events.reading.stream import StreamPoint, stream
    from runhooks.events.reading.values import Audio, Histogram, Image, SummaryDecoder, TaggedValue

__all__ = [
    "Audio",
    "Damage",
    "Event",
    "EventWriter",
    "FileReport",
    "Fold",
    "Gap",
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
    "read_events",
    "read_records",
    "stream",
]

# Those who only write need no reader.
__getattr__ = lazily(
    __name__, dict.fromkeys(set(__all__) - set(globals()), "runhooks.events.reading")
)
