"""Reading event files: scalars as columns, everything else when it is touched."""

from runhooks.events.reading.check import FileReport, Fold, check
from runhooks.events.reading.results import Damage, Point, Points, Scalars
from runhooks.events.reading.runs import Run, Runs, Tag, read
from runhooks.events.reading.stream import StreamPoint, stream
from runhooks.events.reading.values import Audio, Histogram, Image, SummaryDecoder, TaggedValue

__all__ = [
    "Audio",
    "Damage",
    "FileReport",
    "Fold",
    "Histogram",
    "Image",
    "Point",
    "Points",
    "Run",
    "Runs",
    "Scalars",
    "StreamPoint",
    "SummaryDecoder",
    "Tag",
    "TaggedValue",
    "check",
    "read",
    "stream",
]
